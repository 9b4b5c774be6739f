/* Burns CPU at the end of a deep stack: three quarters of the time in one function, a quarter in another, so that at a
   high rate many samples are taken while uu walks. Arguments: seconds, depth. Prints the CPU time that was used. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TURN = 20000 };
static volatile uint64_t sink;

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void turns(int count) {
    for (int i = 0; i < count * TURN; i++)
        sink = sink * 3 + 1;
}

__attribute__((noinline)) static void three_quarters(void) {
    turns(3);
    sink++;
}

__attribute__((noinline)) static void one_quarter(void) {
    turns(1);
    sink++;
}

__attribute__((noinline)) static void down(int depth, double end) {
    if (depth > 0) {
        down(depth - 1, end);
    } else {
        while (used() < end) {
            three_quarters();
            one_quarter();
        }
    }
    sink++;
}

int main(int count, char **words) {
    if (count < 3)
        return 1;
    down(atoi(words[2]), used() + atof(words[1]));
    return printf("%f\n", used()) < 0;
}
