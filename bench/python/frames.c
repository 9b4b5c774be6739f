/* Measures, at the innermost function of a stack of Python, samples of the recorder's, and a walk by frame pointers over as
   many frames of C, the floor. frames.py calls it. "fresh": the thread was sampled on another stack just before, so that
   nothing of its last walk is of use; "same": the same stack again. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

enum { TIMES = 41, WALKS = 200 };

static uint64_t ticks(void) {
    _mm_lfence();
    uint64_t now = __rdtsc();
    _mm_lfence();
    return now;
}

static void sample(void) { syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF); }

/* Takes a sample on a stack of its own. */
static void elsewhere(void) {
    static char stack[1 << 16];
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, sample, 0);
    swapcontext(&here, &there);
}

static int ascending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *each) {
    qsort(each, TIMES, sizeof each[0], ascending);
    return each[TIMES / 2];
}

static uint64_t samples(int fresh) {
    uint64_t each[TIMES];
    for (int i = 0; i < TIMES; i++) {
        if (fresh)
            elsewhere();
        const uint64_t begin = ticks();
        sample();
        each[i] = ticks() - begin;
        /* The recorder takes the samples out of their ring. */
        if (i % 8 == 7)
            usleep(5000);
    }
    return median(each);
}

static volatile uint64_t sink;

static uint64_t walks(long depth) {
    uint64_t each[TIMES];
    for (int i = 0; i < TIMES; i++) {
        uint64_t sum = 0, begin = ticks();
        for (int walk = 0; walk < WALKS; walk++) {
            const uint64_t *frame = __builtin_frame_address(0);
            for (long n = 0; n < depth; n++) {
                sum += frame[1];
                frame = (const uint64_t *)frame[0];
            }
            /* Each walk begins when the one before has ended. */
            __asm__ volatile("" : "+r"(sum) : : "memory");
            _mm_lfence();
        }
        each[i] = (ticks() - begin) / WALKS;
        sink += sum;
    }
    return median(each);
}

/* A chain of two functions, so that it is none that the compiler makes a loop of. */
static uint64_t other(long left, long depth);

__attribute__((noinline, noclone)) static uint64_t chain(long left, long depth) {
    uint64_t result = left == 0 ? walks(depth) : other(left - 1, depth);
    __asm__ volatile("" : "+r"(result) : : "memory");
    return result;
}

__attribute__((noinline, noclone)) static uint64_t other(long left, long depth) {
    uint64_t result = left == 0 ? walks(depth) : chain(left - 1, depth);
    __asm__ volatile("" : "+r"(result) : : "memory");
    return result;
}

/* `depth` frames of Python called this. */
int measure(int depth, int number) {
    const uint64_t fresh = samples(1), same = samples(0), floor = chain(depth, depth);
    if (number > 0) {
        printf("%d fresh %d %lu\n", number, depth, (unsigned long)fresh);
        printf("%d same %d %lu\n", number, depth, (unsigned long)same);
        printf("%d floor %d %lu\n", number, depth, (unsigned long)floor);
        fflush(stdout);
    }
    return 0;
}
