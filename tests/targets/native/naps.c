/* Naps of three lengths, each ten times, in a function of its own. Writes the length of each by its own clock, in ms.
   Argument: number of further threads, which wait all the time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void nap(int milliseconds) {
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    double begin = now();
    nanosleep(&t, NULL);
    printf("%d %.3f\n", milliseconds, now() - begin);
}

__attribute__((noinline)) static void naps_1(void) { nap(1); __asm__ volatile(""); }
__attribute__((noinline)) static void naps_50(void) { nap(50); __asm__ volatile(""); }
__attribute__((noinline)) static void naps_300(void) { nap(300); __asm__ volatile(""); }

static void *waits(void *unused) {
    for (;;)
        pause();
    return unused;
}

int main(int count, char **arguments) {
    for (int further = count > 1 ? atoi(arguments[1]) : 0; further > 0; further--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, waits, NULL) != 0)
            return 1;
    }
    /* Looked at from outside from 30 ms on. */
    nap(200);
    for (int i = 0; i < 10; i++) {
        naps_1();
        naps_50();
        naps_300();
    }
    return 0;
}
