/* heap_load - threads allocate, free and look at what they have, threads and children come and go, until a line comes or
 * its input ends. Prints "ready", and at the end "wrong NUMBER": blocks that another one has changed, and children that
 * did not end as they should. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 256, WORKERS = 3 };

static atomic_int over;
static atomic_ulong wrong;

static void *work(void *which) {
    uint32_t random = (uint32_t)(uintptr_t)which * 7919 + 1;
    unsigned char *own[BLOCKS] = {0};
    while (!over) {
        random = random * 1664525 + 1013904223;
        size_t at = random >> 24, size = 1 + (random >> 8 & 4095);
        if (own[at]) {
            wrong += own[at][0] != (unsigned char)at;
            if (random & 64) {
                own[at] = realloc(own[at], size);
                continue;
            }
            free(own[at]);
        }
        own[at] = random & 32 ? calloc(1, size) : malloc(size);
        own[at][0] = (unsigned char)at;
    }
    for (size_t at = 0; at < BLOCKS; at++)
        free(own[at]);
    return 0;
}

static void *one(void *none) {
    free(malloc(100));
    return none;
}

static void *come_and_go(void *none) {
    while (!over) {
        pthread_t thread;
        if (pthread_create(&thread, 0, one, 0))
            wrong++;
        else
            pthread_join(thread, 0);
    }
    return none;
}

static void *fork_children(void *none) {
    for (int round = 0; !over; round++) {
        pid_t child = fork();
        if (!child) {
            void *own[50];
            for (int i = 0; i < 50; i++)
                own[i] = malloc(i * 10 + 1);
            for (int i = 0; i < 50; i++)
                free(own[i]);
            _exit(7);
        }
        int status = 0;
        wrong += waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7;
        if (round % 4 == 0)
            wrong += system("true") != 0;
    }
    return none;
}

int main(void) {
    pthread_t threads[WORKERS + 2];
    for (uintptr_t i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    pthread_create(&threads[WORKERS], 0, come_and_go, 0);
    pthread_create(&threads[WORKERS + 1], 0, fork_children, 0);
    puts("ready"), fflush(stdout);
    char line[16];
    (void)!fgets(line, sizeof line, stdin);
    over = 1;
    for (int i = 0; i < WORKERS + 2; i++)
        pthread_join(threads[i], 0);
    printf("wrong %lu\n", (unsigned long)wrong);
    return wrong != 0;
}
