/* A thread that waits in poll(2) for many files, which takes it milliseconds to begin: also when it begins again after a
   stop. Writes "ready", runs until "end" on standard input, and then writes how often the thread has gone to sleep in a
   call, at most: once to wait, and for each stop once in it and once to wait again. Writes "few" if it may not have
   files enough. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Seconds of CPU time that a call takes to begin, at least, far below those after which uu takes it for work; and the
   number of files by which that is tried at most. */
#define WANTED 0.002
#define LEAST 0.0005
#define LARGEST 1000000

static atomic_int ending;
static struct pollfd *polled;
static nfds_t number;
static long most;

static double spent(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What takes the CPU away is not counted. */
static long slept(void) {
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
}

__attribute__((noinline)) static int in_poll(int ms) { return poll(polled, number, ms); }

static void *polls(void *unused) {
    while (!atomic_load(&ending)) {
        long before = slept();
        if (in_poll(60) != 0)
            abort();
        long times = slept() - before;
        most = times > most ? times : most;
    }
    return unused;
}

int main(void) {
    struct rlimit limit, most_files = {LARGEST, LARGEST};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    /* Only root may raise the second limit. */
    if (setrlimit(RLIMIT_NOFILE, &most_files) != 0)
        setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    /* Of all files, this kind takes longest. */
    int ends[2];
    struct epoll_event event = {EPOLLIN, {0}};
    if (pipe(ends) != 0)
        return 1;
    int poller = epoll_create1(0);
    if (epoll_ctl(poller, EPOLL_CTL_ADD, ends[0], &event) != 0)
        return 1;
    nfds_t largest = limit.rlim_cur < LARGEST ? (nfds_t)limit.rlim_cur : LARGEST;
    polled = calloc(largest, sizeof *polled);
    for (nfds_t i = 0; i < largest; i++)
        polled[i] = (struct pollfd){poller, POLLIN, 0};
    double took = 0;
    for (number = 1024; took < WANTED && number < largest;) {
        number = 2 * number < largest ? 2 * number : largest;
        double before = spent();
        in_poll(1);
        took = spent() - before;
    }
    puts(took < LEAST ? "few" : "ready");
    fflush(stdout);
    pthread_t thread;
    pthread_create(&thread, 0, polls, 0);
    char word[16];
    char *said = fgets(word, sizeof word, stdin);
    atomic_store(&ending, 1);
    pthread_join(thread, 0);
    printf("%ld\n", most);
    return said == 0;
}
