/* Threads that wait for known times, each in one kind of call, and one that spins. Each measures by the clock how long
   it was in its calls, without the time in which it was ready and did not get a CPU, as the kernel counts that, counts
   those that ended early, and, by the kernel's count of how often it went to sleep, how often it was stopped in one of
   them: a call that blocks once goes to sleep once, and twice more for every stop. One that has waited, and is ready
   to run, may be stopped as any thread that runs before it gets a CPU to leave its call: calls in which it was ready
   for longer are not counted. `wall SECONDS`: runs that long. `wall`: writes "ready", and runs until "end" on standard
   input. At its end it writes a line for each thread: name, seconds in calls, calls, calls that ended early, calls
   that count, those of them in which it went to sleep more than three times, and the most times in one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static atomic_int ending;
static int pipe_ends[2], sockets[2], poller;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long sleeps_so_far(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/* Seconds in which the thread was ready and did not get a CPU; 0 if the kernel does not say. */
static double queued(int schedstat) {
    char text[128] = "";
    unsigned long long ran, queued;
    if (pread(schedstat, text, sizeof text - 1, 0) <= 0 || sscanf(text, "%llu %llu", &ran, &queued) != 2)
        return 0;
    return (double)queued / 1e9;
}

static int pause_for(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    return nanosleep(&t, NULL);
}

__attribute__((noinline)) static int in_sleep(void) { return pause_for(70); }

__attribute__((noinline)) static int in_epoll(void) {
    struct epoll_event event;
    return epoll_wait(poller, &event, 1, 50);
}

__attribute__((noinline)) static int in_read(void) {
    char byte;
    return read(pipe_ends[0], &byte, 1) == 1 ? 0 : -1;
}

__attribute__((noinline)) static int in_recv(void) {
    char byte;
    return recv(sockets[0], &byte, 1, 0) == 1 ? 0 : -1;
}

__attribute__((noinline)) static int in_lock(void) {
    int failed = pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return failed;
}

static struct waiter {
    const char *name;
    int (*wait)(void);
    double seconds;
    long calls, early, counted, often, most;
} waiters[] = {
    {"sleeps", in_sleep, 0, 0, 0, 0, 0, 0}, {"polls", in_epoll, 0, 0, 0, 0, 0, 0}, {"reads", in_read, 0, 0, 0, 0, 0, 0},
    {"recvs", in_recv, 0, 0, 0, 0, 0, 0},   {"locks", in_lock, 0, 0, 0, 0, 0, 0},
};
#define WAITERS (sizeof waiters / sizeof *waiters)

/* Seconds in which a thread that is ready is not found so, and stopped: that takes longer. */
#define SHORT 50e-6

static void *waits(void *argument) {
    struct waiter *w = argument;
    prctl(PR_SET_NAME, w->name);
    int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
    while (!atomic_load(&ending)) {
        long before = sleeps_so_far();
        double ready = queued(schedstat), begun = now();
        errno = 0;
        w->early += w->wait() != 0;
        double took = now() - begun;
        ready = queued(schedstat) - ready;
        w->seconds += took - ready;
        long slept = sleeps_so_far() - before;
        w->calls++;
        if (ready < SHORT) {
            w->most = slept > w->most ? slept : w->most;
            w->often += slept > 3;
            w->counted++;
        }
    }
    return NULL;
}

static void *spins(void *unused) {
    prctl(PR_SET_NAME, "spins");
    while (!atomic_load(&ending))
        for (int i = 0; i < 100000; i++)
            sink += i;
    return unused;
}

/* Gives the others what they wait for. */
static void *gives(void *unused) {
    prctl(PR_SET_NAME, "gives");
    while (!atomic_load(&ending)) {
        pthread_mutex_lock(&lock);
        pause_for(60);
        pthread_mutex_unlock(&lock);
        if (write(pipe_ends[1], "x", 1) != 1 || send(sockets[1], "x", 1, 0) != 1)
            abort();
        pause_for(1);
    }
    if (write(pipe_ends[1], "x", 1) != 1 || send(sockets[1], "x", 1, 0) != 1)
        abort();
    return unused;
}

int main(int count, char **words) {
    pthread_t threads[WAITERS + 2];
    struct timeval limit = {3600, 0};
    char line[16];
    if (pipe(pipe_ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (poller = epoll_create1(0)) < 0)
        return 3;
    /* With a limit, a call ends early after a stop, unless that is repaired. */
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    pthread_create(&threads[WAITERS], NULL, gives, NULL);
    pthread_create(&threads[WAITERS + 1], NULL, spins, NULL);
    for (size_t i = 0; i < WAITERS; i++)
        pthread_create(&threads[i], NULL, waits, &waiters[i]);
    if (count > 1) {
        pause_for((long)(atof(words[1]) * 1e3));
    } else {
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            return 2;
    }
    atomic_store(&ending, 1);
    for (size_t i = 0; i < WAITERS + 2; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < WAITERS; i++)
        printf("%s %.3f %ld %ld %ld %ld %ld\n", waiters[i].name, waiters[i].seconds, waiters[i].calls, waiters[i].early,
               waiters[i].counted, waiters[i].often, waiters[i].most);
    return 0;
}
