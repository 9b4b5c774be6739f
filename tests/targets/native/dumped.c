/* Threads that stand in known functions, for looks from outside. Each says on standard output that it is there; then the
   program writes "ready". The thread in `waits_for_events` sits in epoll_wait, which a stop by a signal or a debugger
   ends with EINTR: the program says so and ends with 1, if it sees one. "end" on standard input ends it with 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static pthread_barrier_t there;
static int never[2];

KEPT static void waits_for_events(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, never[0], &event);
    pthread_barrier_wait(&there);
    while (epoll_wait(epoll, &event, 1, -1) < 0) {
        printf("epoll_wait: %s\n", strerror(errno));
        fflush(stdout);
        _exit(1);
    }
}

KEPT static void waits_for_bytes(void) {
    char byte;
    pthread_barrier_wait(&there);
    if (read(never[0], &byte, 1) < 0)
        perror("read");
}

KEPT static void spins(void) {
    pthread_barrier_wait(&there);
    for (volatile unsigned long turns = 0;; turns++)
        ;
}

KEPT static void *in_events(void *unused) {
    waits_for_events();
    return unused;
}

KEPT static void *in_bytes(void *unused) {
    waits_for_bytes();
    return unused;
}

KEPT static void *in_loop(void *unused) {
    spins();
    return unused;
}

KEPT static int waits_for_the_end(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    int ended = fgets(line, sizeof line, stdin) != NULL;
    return ended ? 0 : 2;
}

int main(void) {
    pthread_t threads[3];
    void *(*const bodies[3])(void *) = {in_events, in_bytes, in_loop};
    if (pipe(never) != 0)
        return 3;
    pthread_barrier_init(&there, NULL, 4);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, bodies[i], NULL);
    pthread_barrier_wait(&there);
    int code = waits_for_the_end();
    _exit(code);
}
