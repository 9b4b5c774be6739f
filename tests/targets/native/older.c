/* A program for older systems: linked without anything that an old C library lacks.
 *
 *   older work SECONDS       two threads work; meanwhile a library is loaded, used and unloaded, again and again
 *   older capture LIBRARY    compares uu_capture of libuunwind with backtrace(3), in an object that was loaded later
 *   older crash              writes to address 8, three functions deep */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef size_t capture(uint64_t *frames, size_t room, uint32_t flags, uint16_t *stop);
typedef long called(long (*)(void *), void *);

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static volatile double until;
static volatile long sum;

__attribute__((noinline)) static long turn(void *unused) {
    (void)unused;
    for (int i = 0; i < 20000; i++)
        sum += i;
    return sum;
}

__attribute__((noinline)) static long thread_work(void) {
    while (seconds() < until)
        turn(0);
    return sum + 1;
}

static void *thread(void *unused) {
    (void)unused;
    return (void *)(thread_work() + 1);
}

/* A library beside the program: passing() calls what it is given. */
static called *open_passing(void **handle) {
    *handle = dlopen("./libpassing.so", RTLD_NOW);
    called *found = *handle ? (called *)dlsym(*handle, "passing") : 0;
    if (!found) {
        printf("no library: %s\n", dlerror());
        exit(2);
    }
    return found;
}

static int work(const char *text) {
    pthread_t threads[2];
    until = seconds() + atof(text);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, thread, 0);
    while (seconds() < until) {
        void *handle;
        called *passing = open_passing(&handle);
        for (int i = 0; i < 50; i++)
            sum += passing(turn, 0);
        dlclose(handle);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    puts("done");
    return 0;
}

static capture *uu_capture;

__attribute__((noinline)) static long compare(void *unused) {
    (void)unused;
    uint64_t ours[64];
    uint16_t stop = 0;
    void *theirs[64];
    size_t count = uu_capture(ours, 64, 0, &stop);
    size_t expected = backtrace(theirs, 64);
    /* Ours begins with this function; theirs ends with _start, where ours ends, too. The first lines differ by the place of
       the call. */
    size_t same = 0;
    while (same + 1 < count && same + 1 < expected &&
           (ours[same + 1] & (((uint64_t)1 << 48) - 1)) == (uint64_t)(uintptr_t)theirs[same + 1])
        same++;
    printf("stop %u, %zu and %zu frames, %zu the same\n", stop, count, expected, same + 1);
    return count == expected && same + 1 == count && stop == 1;
}

static int capture_here(const char *path) {
    void *library = dlopen(path, RTLD_NOW), *handle;
    uu_capture = library ? (capture *)dlsym(library, "uu_capture") : 0;
    if (!uu_capture) {
        printf("no library: %s\n", dlerror());
        return 2;
    }
    long good = compare(0);
    for (int i = 0; i < 20; i++) {
        called *passing = open_passing(&handle);
        good += passing(compare, 0) - 3;
        dlclose(handle);
    }
    printf("%ld right\n", good);
    return 0;
}

static long *volatile nowhere = (long *)8;

__attribute__((noinline, noclone)) long third(volatile long *place) {
    *place = 1;
    return 3;
}
__attribute__((noinline, noclone)) long second(long *place) {
    return third(place) + 2;
}
__attribute__((noinline, noclone)) long first(long *place) {
    return second(place) + 1;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "work") == 0)
        return work(argv[2]);
    if (argc > 2 && strcmp(argv[1], "capture") == 0)
        return capture_here(argv[2]);
    return argc > 1 && strcmp(argv[1], "crash") == 0 ? (int)first(nowhere) : 1;
}
