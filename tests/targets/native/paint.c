/* How much stack a sample takes: fills the unused part of the stack with a pattern, works for a while without calling
   anything, then looks how far down the pattern was disturbed. Prints "handler used <bytes>": what lies below the kernel's
   own frame (whose size the kernel tells by AT_MINSIGSTKSZ).
   A program, and a shared object whose paint() Python calls, so that the plugin's part is seen too. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>

#define PAINTED 65536
#define RED_ZONE 128

/* Where the pattern begins: below this function's frame and what clock_gettime may use. */
#define LEFT_FREE 512

__attribute__((noinline)) static long disturbed(double seconds) {
    volatile uint64_t *top = (volatile uint64_t *)((uintptr_t)__builtin_frame_address(0) - LEFT_FREE);
    volatile uint64_t *bottom = top - PAINTED / 8;
    for (volatile uint64_t *word = bottom; word < top; word++)
        *word = 0x5ca1ab1e5ca1ab1e;
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    double end = (double)t.tv_sec + (double)t.tv_nsec / 1e9 + seconds;
    do {
        for (unsigned i = 0; i < 50000000; i++)
            __asm__ volatile("");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < end);
    volatile uint64_t *word = bottom;
    while (word < top && *word == 0x5ca1ab1e5ca1ab1e)
        word++;
    return (long)((uintptr_t)top + LEFT_FREE - (uintptr_t)word);
}

/* Returns the bytes used; negative when no signal came. */
__attribute__((noinline)) long paint(double seconds) {
    long used = disturbed(seconds) - (long)getauxval(AT_MINSIGSTKSZ) - RED_ZONE;
    printf("handler used %ld\n", used);
    fflush(stdout);
    return used;
}

int main(void) {
    return paint(1.0) == 0;
}
