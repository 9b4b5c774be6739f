// A program whose calls are known, for another C library than glibc: its own functions call each other as CALLS of
// musl.rs says, also through that library (qsort, a signal's handler, a thread's start) and through one that it opens.
//
//   musl LIBRARY
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN __attribute__((noinline, noclone))
// A call after which something is left to do is no jump.
#define DONE __asm__ volatile("" ::: "memory")

static volatile unsigned sink;

OWN void spins(void) {
    for (unsigned i = 0; i < 10000; i++)
        sink += i;
}

OWN void inner(void) {
    spins();
    DONE;
}

OWN void by_hand(unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++)
        inner();
    DONE;
}

OWN int compares(const void *a, const void *b) {
    spins();
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

OWN void sorts(void) {
    int numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = i * 37 % 64;
    qsort(numbers, 64, sizeof *numbers, compares);
    DONE;
}

OWN void through_library(void (*of_library)(void (*)(unsigned))) {
    of_library(by_hand);
    DONE;
}

OWN void handler(int signal) {
    (void)signal;
    by_hand(1000);
    DONE;
}

OWN void signals(void) {
    raise(SIGUSR1);
    DONE;
}

OWN void forks(void) {
    pid_t child = fork();
    if (child == 0) {
        by_hand(20000);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        abort();
    DONE;
}

OWN void *thread(void *rounds) {
    by_hand(*(unsigned *)rounds);
    if (*(unsigned *)rounds % 2)
        pthread_exit(NULL);
    return NULL;
}

int main(int argc, char **argv) {
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *of_library = library ? dlsym(library, "of_library") : NULL;
    if (!of_library || sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL))
        return 1;
    // Takes back what it has begun to load.
    if (dlopen("/no/such/library.so", RTLD_NOW))
        return 2;
    for (unsigned round = 0; round < 12; round++) {
        unsigned rounds = 3000 + round;
        pthread_t other;
        if (pthread_create(&other, NULL, thread, &rounds))
            return 3;
        by_hand(2000);
        sorts();
        through_library((void (*)(void (*)(unsigned)))of_library);
        signals();
        pthread_join(other, NULL);
    }
    forks();
    puts("done");
    return 0;
}
