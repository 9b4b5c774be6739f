/* System calls by their numbers, syscall(2): what each returns, errno, and six arguments; in a constructor of a library
 * (EARLY), which may run before any other one's, and in the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, long result) {
    printf("%s %ld errno %d\n", what, result, errno);
    errno = 0;
}

static void numbers(void) {
    int word = 1;
    const struct timespec soon = {0, 2000000}, past = {1, 0};
    errno = 0;
    say("close", syscall(SYS_close, -1));
    say("no such number", syscall(-1L));
    say("nor this", syscall(100000L));
    printf("pid %d\n", syscall(SYS_getpid) == getpid());
    char path[32];
    int file = memfd_create("numbers", 0);
    if (ftruncate(file, 2 * 4096) != 0 || pwrite(file, "second", 7, 4096) != 7)
        return;
    char *page = (char *)syscall(SYS_mmap, NULL, 4096UL, PROT_READ, MAP_PRIVATE, file, 4096L);
    printf("mapped %s\n", page);
    snprintf(path, sizeof path, "%ld", syscall(SYS_mmap, NULL, 4096UL, PROT_READ, MAP_PRIVATE, file, 1L));
    printf("unaligned %s errno %d\n", path, errno);
    close(file);
    errno = 0;
    say("not equal", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, NULL));
    say("in time", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &soon));
    say("bits", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 1, &past, NULL, 1));
    say("no bit", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 1, NULL, NULL, 0));
    say("wake", syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1));
    say("no such operation", syscall(SYS_futex, &word, 77, 1));
    fflush(stdout);
    int status = 0;
    long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        syscall(SYS_exit_group, 7);
    waitpid((int)child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    fflush(stdout);
}

#ifdef EARLY
__attribute__((constructor)) static void early(void) { numbers(); }
int is_early = 1;
#else
extern int is_early;
int main(void) {
    numbers();
    return !is_early;
}
#endif
