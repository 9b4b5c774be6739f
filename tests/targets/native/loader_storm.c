/* Two threads that open, call and close many libraries, one after the other, while a third sends each of them the sampling
   signal as fast as it can. Usage: loader_storm FOLDER COUNT CPU_SECONDS */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "digits.h"

static const char *folder;
static int count;
static double seconds;
static volatile int running = 2;
static unsigned long visits;

static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned visit(int number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/lib%04d.so", folder, number);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    unsigned (*enter)(unsigned) = (unsigned (*)(unsigned))dlsym(handle, "enter");
    unsigned result = enter((unsigned)number);
    if (dlclose(handle))
        exit(4);
    __atomic_fetch_add(&visits, 1, __ATOMIC_RELAXED);
    return result;
}

/* One goes up, the other down: each meets libraries that the other has open. */
static void *visitor(void *way) {
    unsigned sum = 0;
    double end = used() + seconds;
    for (int i = 0; used() < end; i = (i + 1) % count)
        sum += digit(way ? i : count - 1 - i, 0);
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
    return (void *)(unsigned long)(sum == 7);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    folder = argv[1];
    count = atoi(argv[2]);
    seconds = atof(argv[3]);
    pthread_t threads[2];
    pthread_create(&threads[0], 0, visitor, 0);
    pthread_create(&threads[1], 0, visitor, threads);
    unsigned long sent = 0;
    while (getenv("UU_SESSION") && running == 2) {
        struct timespec pause = {.tv_nsec = 50000};
        nanosleep(&pause, 0);
        pthread_kill(threads[0], SIGPROF);
        pthread_kill(threads[1], SIGPROF);
        sent += 2;
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("visits %lu sent %lu\n", visits, sent);
    return 0;
}
