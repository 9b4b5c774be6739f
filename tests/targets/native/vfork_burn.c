/* Has a vfork child burn argv[1] seconds of CPU, while its parent waits in the kernel; exits with argv[2]. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void burn(double seconds) {
    volatile unsigned n = 1;
    struct timespec t;
    do {
        for (int i = 0; i < 20000; i++)
            n = n * 1664525u + 1013904223u;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < seconds);
}

int main(int argc, char **argv) {
    (void)argc;
    pid_t child = vfork();
    if (child == 0) {
        burn(atof(argv[1]));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("burnt 1\n");
    return atoi(argv[2]);
}
