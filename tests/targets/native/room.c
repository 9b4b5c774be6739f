/* Says how much address space it gets, in MiB: what it can map before the kernel refuses more, then works for a while.
 *
 *   room             within the limit that it was started with
 *   room MIB         sets RLIMIT_AS to so many MiB first, and says what getrlimit(2) answers then
 *   room MIB fork    the same, in a child
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)
#define MOST 4096

static volatile unsigned long sum;

__attribute__((noinline)) static void work(void) {
    struct timespec now;
    do {
        for (unsigned i = 0; i < 100000; i++)
            sum += i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < 300);
}

int main(int argc, char **argv) {
    static void *pieces[MOST];
    if (argc > 1) {
        const rlim_t bytes = strtoul(argv[1], 0, 10) * MIB;
        struct rlimit limit = {bytes, RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &limit) || getrlimit(RLIMIT_AS, &limit))
            return perror("rlimit"), 1;
        printf("limit %lu %d\n", (unsigned long)(limit.rlim_cur / MIB), limit.rlim_max == RLIM_INFINITY);
        fflush(stdout);
        int status;
        if (argc > 2 && fork() > 0)
            return wait(&status) < 0 || status;
    }
    unsigned count = 0;
    while (count < MOST && (pieces[count] = mmap(0, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED)
        count++;
    for (unsigned i = 0; i < count; i++)
        munmap(pieces[i], MIB);
    printf("room %u\n", count);
    work();
    return 0;
}
