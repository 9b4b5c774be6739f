/* Blocks all signals and waits for a vfork child, as posix_spawn does, which says "ready" and takes its time; then goes on
 * as ever until it reads a line. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    if (vfork() == 0) {
        struct timespec long_time = {1, 500000000};
        if (write(1, "ready\n", 6) == 6)
            nanosleep(&long_time, NULL);
        _exit(0);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    char line[8];
    return fgets(line, sizeof line, stdin) ? 0 : 1;
}
