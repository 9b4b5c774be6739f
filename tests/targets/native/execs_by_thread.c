/* A program that calls exec again and again, each time by another thread than its main one, while two more threads spin.
   Arguments: how often; and "ends" if the main thread ends, or "stays". It ends with 7. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **words;

static void spins(unsigned long turns) {
    for (volatile unsigned long i = 0; i < turns; i++)
        ;
}

static void *in_loop(void *unused) {
    spins(~0ul);
    return unused;
}

static void *in_exec(void *unused) {
    char left[16];
    spins(3000000);
    int count = atoi(words[1]);
    if (count == 0)
        _exit(7);
    snprintf(left, sizeof left, "%d", count - 1);
    execl("/proc/thread-self/exe", words[0], left, words[2], (char *)0);
    _exit(8);
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count != 3)
        return 9;
    words = arguments;
    pthread_create(&thread, 0, in_loop, 0);
    pthread_create(&thread, 0, in_loop, 0);
    pthread_create(&thread, 0, in_exec, 0);
    if (!strcmp(words[2], "ends"))
        pthread_exit(0);
    spins(~0ul);
}
