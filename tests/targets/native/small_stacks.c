/* Threads with the smallest stack that there is, and handlers on alternate stacks of one page. Both must live under the
   profiler as they live without it. Usage: small_stacks threads|handlers */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned spin(unsigned n) {
    for (int i = 0; i < 20000; i++)
        n = n * 1664525u + 1013904223u;
    return n;
}

__attribute__((noinline)) static unsigned deeper(unsigned n, int depth) {
    unsigned got = depth == 0 ? spin(n) : deeper(n + 1, depth - 1);
    __asm__ volatile("" : "+r"(got));
    return got ^ (unsigned)depth;
}

static void *small_thread(void *argument) {
    unsigned sum = 0;
    for (double end = cpu() + 0.4; cpu() < end;)
        sum += deeper(1, 20);
    *(unsigned *)argument = sum;
    return 0;
}

static int threads(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, 16384))
        return 2;
    for (int round = 0; round < 3; round++) {
        pthread_t ids[4];
        unsigned sums[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&ids[i], &attributes, small_thread, &sums[i]))
                return 3;
        for (int i = 0; i < 4; i++)
            pthread_join(ids[i], 0);
    }
    return 0;
}

static volatile unsigned handled, rounds = 2000000;

/* Uses next to no stack: what is left of the page after the kernel's frame is a few hundred bytes. */
static void on_signal(int number) {
    unsigned n = (unsigned)number;
    for (unsigned i = 0, count = rounds; i < count; i++) {
        n = n * 1664525u + 1013904223u;
        __asm__ volatile("" : "+r"(n));
    }
    handled += n | 1;
}

/* The lowest page of its own: overflow meets it. */
static void set_alternate_stack(void) {
    size_t size = PAGE, least = getauxval(AT_MINSIGSTKSZ);
    while (size < least + 512)
        size += PAGE;
    char *memory = mmap(0, PAGE + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, PAGE, PROT_NONE);
    stack_t stack = {.ss_sp = memory + PAGE, .ss_size = size};
    if (sigaltstack(&stack, 0)) {
        perror("sigaltstack");
        exit(4);
    }
    stack_t check;
    sigaltstack(0, &check);
    if (check.ss_sp != stack.ss_sp || check.ss_size != size || check.ss_flags)
        exit(5);
}

static void *handler_thread(void *argument) {
    set_alternate_stack();
    for (int i = 0; i < 300; i++)
        pthread_kill(pthread_self(), SIGUSR1);
    return argument;
}

static int handlers(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, 0);
    pthread_t other;
    pthread_create(&other, 0, handler_thread, 0);
    handler_thread(0);
    pthread_join(other, 0);
    return handled ? 0 : 6;
}

int main(int argc, char **argv) {
    int result = argc > 1 && strcmp(argv[1], "threads") == 0 ? threads() : handlers();
    printf("done %d\n", result);
    return result;
}
