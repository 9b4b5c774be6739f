/* A program with a bad plugin's library and a good plugin's code on its stack all the time. With -DLIBRARY: that library.
   Prints what it computed. Argument: CPU seconds. */
#define _GNU_SOURCE
#include "faces.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef LIBRARY
int faces_bad_mark = 1;
__attribute__((noinline)) double through_bad(double (*back)(unsigned), unsigned n) {
    volatile double room[20];
    room[n % 20] = back(n);
    return room[n % 20] + 1;
}
#else
int faces_good_mark = 1;
double through_bad(double (*back)(unsigned), unsigned n);

/* A computation whose result depends on every register that an interruption could change. */
__attribute__((noinline)) static double work(unsigned n) {
    double sum = 0;
    unsigned long a = n, b = 3, c = 5, d = 7, e = 11;
    char text[300], copy[300];
    for (unsigned i = 0; i < 20000; i++) {
        a = a * 6364136223846793005u + 1442695040888963407u;
        b ^= a >> 7; c += b * 3; d = (d << 5 | d >> 59) + c; e -= d ^ a;
        sum += (double)(e & 255) * 0.5;
        if (i % 512 == 0) {
            memset(text, (int)(a & 127), sizeof text);
            memmove(copy, text, sizeof text);
            sum += copy[i % 300];
        }
    }
    errno = (int)(n & 63);
    return sum + (double)(b % 7) + errno;
}

__attribute__((noinline)) static double outer(unsigned n) { return through_bad(work, n) * 2; }

static void *run(void *seconds) {
    /* Room for the fault of a plugin that has no stack left. */
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    double sum = 0;
    unsigned rounds = (unsigned)(*(double *)seconds * 10000);
    for (unsigned n = 0; n < rounds; n++)
        sum += outer(n);
    printf("sum %.1f\n", sum);
    return 0;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    pthread_t thread;
    pthread_create(&thread, 0, run, &seconds);
    pthread_join(thread, 0);
    run(&seconds);
    return 0;
}
#endif
