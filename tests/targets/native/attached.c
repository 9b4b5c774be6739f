/* A program to be recorded from outside while it runs. One thread spins in known functions; two wait for each other with
   epoll_wait, thousands of times a second, and say so and end the program with 1 if a wait is interrupted. It writes
   "ready". "more" on standard input begins a thread of the name "later", which spins for 0.3 s of its own CPU time; then
   the program writes "done". "stay" begins one that spins until "leave", at least. "end" ends it with 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static int events[2];
static volatile int stays;

KEPT static void spins(void) {
    for (volatile unsigned long turns = 0;; turns++)
        ;
}

KEPT static void *in_loop(void *unused) {
    spins();
    return unused;
}

KEPT static void ping_pong(long own) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    uint64_t count = 1;
    epoll_ctl(epoll, EPOLL_CTL_ADD, events[own], &event);
    for (;;) {
        if (epoll_wait(epoll, &event, 1, -1) < 0) {
            printf("epoll_wait: %s\n", strerror(errno));
            fflush(stdout);
            _exit(1);
        }
        if (read(events[own], &count, sizeof count) != sizeof count || write(events[1 - own], &count, sizeof count) < 0)
            _exit(2);
    }
}

KEPT static void *in_ping_pong(void *own) {
    ping_pong((long)own);
    return own;
}

KEPT static void spins_later(void) {
    struct timespec used = {0, 0};
    while (stays || (used.tv_sec == 0 && used.tv_nsec < 300000000))
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
}

KEPT static void *in_later(void *unused) {
    prctl(PR_SET_NAME, "later");
    spins_later();
    puts("done");
    fflush(stdout);
    return unused;
}

int main(void) {
    pthread_t thread;
    char line[16];
    uint64_t one = 1;
    events[0] = eventfd(0, 0);
    events[1] = eventfd(0, 0);
    pthread_create(&thread, NULL, in_loop, NULL);
    pthread_create(&thread, NULL, in_ping_pong, (void *)0);
    pthread_create(&thread, NULL, in_ping_pong, (void *)1);
    if (write(events[0], &one, sizeof one) != sizeof one)
        return 3;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "end\n") == 0)
            _exit(0);
        stays = strcmp(line, "stay\n") == 0;
        if (strcmp(line, "leave\n") == 0)
            continue;
        pthread_create(&thread, NULL, in_later, NULL);
    }
    return 4;
}
