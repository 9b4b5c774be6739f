/* Calls a function through one that is inlined: it works for a while, or waits if there is an argument. */
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline, noclone)) static void innermost(int waits) {
    if (waits)
        pause();
    for (unsigned long n = 0; n < 400000000; n++)
        sink += n;
}

static inline __attribute__((always_inline)) void inlined(int waits) {
    sink++;
    innermost(waits); /* called by the inlined function */
    sink++;
}

__attribute__((noinline, noclone)) void outermost(int waits) {
    inlined(waits); /* inlined here */
    sink += 2;
}

int main(int argc, char **argv) {
    (void)argv;
    outermost(argc > 1);
    sink++;
    return 0;
}
