// A program of threads whose call graph is known: every function's callers are in the list `calls` of
// tests/aarch64/machine/check.py. Each works for a while itself, so that samples are taken in all of them: in leaf
// functions, which have no frame; in functions with large frames, with alloca(3), with variable arguments; in prologues
// and epilogues, which a loop of short calls enters all the time; in a function that a signal handler calls.
//
//     graph SECONDS THREADS [crash]

#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP __attribute__((noinline, noclone, noipa))

static volatile uint64_t sink;

// No frame: the return address stays in its register.
KEEP uint64_t leaf(uint64_t n) {
    uint64_t sum = n;
    for (uint64_t i = 0; i < 3 + 4 * (n & 15); i++)
        sum = sum * 6364136223846793005u + i;
    return sum;
}

// Short: most of its instructions are prologue and epilogue.
KEEP uint64_t twig(uint64_t n) {
    uint64_t sum = leaf(n & 3);
    sink = sum;
    return sum + n;
}

KEEP uint64_t large(uint64_t n) {
    unsigned char room[5000];
    memset(room, (int)n, sizeof room);
    uint64_t sum = 0;
    for (unsigned i = 0; i < sizeof room; i += 7)
        sum += room[i] * twig(i & 1);
    sink = room[n % sizeof room];
    return sum;
}

KEEP uint64_t dynamic(uint64_t n) {
    volatile unsigned char *room = alloca(64 + (n & 255));
    for (unsigned i = 0; i < 64; i++)
        room[i] = (unsigned char)(n + i);
    uint64_t sum = leaf(n) + twig(n);
    return sum + room[n & 63];
}

KEEP uint64_t many(int count, ...) {
    va_list list;
    va_start(list, count);
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += leaf(va_arg(list, uint64_t) & 1);
    va_end(list);
    return sum;
}

KEEP uint64_t deep(unsigned depth) {
    uint64_t sum = twig(depth);
    if (depth > 0)
        sum += deep(depth - 1);
    return sum + sink;
}

KEEP uint64_t registers(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t e = leaf(a), f = twig(b), g = leaf(c), h = twig(d);
    return leaf(e + f) + twig(g + h) + a + b + c + d + e + f + g + h;
}

KEEP void in_handler(void) { sink = twig(7); }

static void handler(int signal) {
    (void)signal;
    for (int i = 0; i < 20; i++)
        in_handler();
}

static double seconds;

KEEP void *work(void *argument) {
    uint64_t n = (uintptr_t)argument;
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        n++;
        sink = large(n) + dynamic(n) + many(6, n, n, n, n, n, n) + deep(30) + registers(n, n + 1, n + 2, n + 3);
        for (int i = 0; i < 50; i++)
            sink = dynamic(n) + many(6, n, n, n, n, n, n) + registers(n, n + 1, n + 2, n + 3);
        raise(SIGUSR1);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - from.tv_sec) + (double)(now.tv_nsec - from.tv_nsec) / 1e9 < seconds);
    return NULL;
}

KEEP uint64_t crash(uint64_t *place) { return *place = sink; }

KEEP uint64_t before_crash(uint64_t n) { return crash((uint64_t *)(uintptr_t)(n & 8)) + sink; }

int main(int argc, char **argv) {
    seconds = argc > 1 ? atof(argv[1]) : 1;
    int count = argc > 2 ? atoi(argv[2]) : 3;
    pthread_t threads[16];
    if (count > 16)
        return 2;
    signal(SIGUSR1, handler);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)) != 0)
            return 1;
    work(NULL);
    if (argc > 3)
        sink = before_crash(8) + 1;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}
