/* Loads the library of the first argument three times, in namespaces of their own, and has it mapped once more to read
   it. A thread waits inside each copy. Writes "ready". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int caller(int (*function)(void *), void *argument);

enum { COPIES = 3 };

static pthread_barrier_t all;

__attribute__((noinline)) static int waits(void *unused) {
    pthread_barrier_wait(&all);
    pause();
    return unused != 0;
}

__attribute__((noinline)) static void *in_copy(void *copy) {
    volatile int result = ((caller *)copy)(waits, 0);
    return result ? copy : 0;
}

int main(int count, char **arguments) {
    pthread_t threads[COPIES];
    if (count != 2)
        return 2;
    pthread_barrier_init(&all, 0, COPIES + 1);
    for (int i = 0; i < COPIES; i++) {
        void *handle = dlmopen(i ? LM_ID_NEWLM : LM_ID_BASE, arguments[1], RTLD_NOW);
        void *copy = handle ? dlsym(handle, "calls_back") : 0;
        int file = open(arguments[1], O_RDONLY);
        /* The kernel puts it directly below what was mapped last. */
        void *read = mmap(0, lseek(file, 0, SEEK_END), PROT_READ, MAP_PRIVATE, file, 0);
        close(file);
        if (!copy || read == MAP_FAILED) {
            fprintf(stderr, "%s\n", dlerror());
            return 3;
        }
        pthread_create(&threads[i], 0, in_copy, copy);
    }
    pthread_barrier_wait(&all);
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
