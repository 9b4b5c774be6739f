/* Naps of three lengths, each ten times, in a function of its own. Writes the length of each by its own clock, in ms.
   Arguments: number of further threads, which wait all the time; `until`: writes "ready", naps until there is a line on
   standard input, and then writes the begin of each nap, too. */
#include <poll.h>
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

static struct {
    int milliseconds;
    double length, begin;
} all[20000];
static int count_of_all;

static void nap(int milliseconds) {
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    double begin = now();
    nanosleep(&t, NULL);
    double length = now() - begin;
    all[count_of_all].milliseconds = milliseconds;
    all[count_of_all].length = length;
    all[count_of_all++].begin = begin;
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
    int until = count > 2;
    struct pollfd input = {0, POLLIN, 0};
    if (until) {
        puts("ready");
        fflush(stdout);
    } else {
        /* Looked at from outside from 30 ms on. */
        nap(200);
    }
    for (int i = 0; until ? poll(&input, 1, 0) == 0 && i < 6000 : i < 10; i++) {
        naps_1();
        naps_50();
        naps_300();
    }
    for (int i = 0; i < count_of_all; i++) {
        printf("%d %.3f", all[i].milliseconds, all[i].length);
        printf(until ? " %.3f\n" : "\n", all[i].begin);
    }
    return 0;
}
