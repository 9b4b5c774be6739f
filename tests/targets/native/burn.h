/* A function that uses CPU time. */
#include <time.h>

/* Until the process has used this many seconds of it. */
__attribute__((noinline)) static unsigned burn(double seconds) {
    unsigned n = 1;
    struct timespec t;
    do {
        for (int i = 0; i < 20000; i++)
            n = n * 1664525u + 1013904223u;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < seconds);
    return n;
}
