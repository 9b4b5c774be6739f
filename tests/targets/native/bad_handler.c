/* Shows that watch_calls.c notices: a handler with the sampling handler's mask that calls what argv[1] names. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *what;
static void *volatile kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int each(struct dl_phdr_info *info, size_t size, void *data) {
    return !info && size && data;
}

static void handler(int number) {
    (void)number;
    if (strcmp(what, "malloc") == 0)
        kept = malloc(10);
    else if (strcmp(what, "pthread_mutex_lock") == 0)
        pthread_mutex_lock(&lock);
    else if (strcmp(what, "dl_iterate_phdr") == 0)
        dl_iterate_phdr(each, 0);
}

int main(int argc, char **argv) {
    what = argc > 1 ? argv[1] : "nothing";
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    uint64_t open = 0;
    static const int left[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};
    for (unsigned i = 0; i < sizeof left / sizeof *left; i++)
        open |= 1ull << (left[i] - 1);
    sigaction(SIGPROF, &action, 0);
    /* glibc keeps signals 32 and 33 out of sa_mask: set the mask by hand, as the kernel takes it. */
    struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } raw;
    syscall(SYS_rt_sigaction, SIGPROF, 0, &raw, 8);
    raw.mask = ~open;
    syscall(SYS_rt_sigaction, SIGPROF, &raw, 0, 8);
    raise(SIGPROF);
    return 0;
}
