/* Threads that wait, one in each kind of system call, for looks from outside. Each thread has the call's name. No call
   ever ends by itself: one that returns was interrupted, and the program says which and ends with 1. It writes "ready N",
   N being the number of these threads, when all of them wait; "end" on standard input ends it with 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static const struct timespec hour = {3600, 0};
static int never[2], semaphore, messages;

static int half_of_pair(void) {
    int ends[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 ? ends[0] : -1;
}

static sigset_t usr2(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return set;
}

static long in_epoll_wait(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, never[0], &event);
    return epoll_wait(epoll, &event, 1, 3600 * 1000);
}

static long in_recv_with_a_limit(void) {
    char byte;
    struct timeval limit = {3600, 0};
    int socket = half_of_pair();
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(socket, &byte, 1, 0);
}

static long in_recv(void) {
    char byte;
    return recv(half_of_pair(), &byte, 1, 0);
}

static long in_sigtimedwait(void) {
    sigset_t set = usr2();
    return sigtimedwait(&set, NULL, &hour);
}

static long in_semop(void) {
    struct sembuf take = {0, -1, 0};
    return syscall(SYS_semop, semaphore, &take, 1);
}

static long in_semtimedop(void) {
    struct sembuf take = {0, -1, 0};
    return semtimedop(semaphore, &take, 1, &hour);
}

static long in_io_getevents(void) {
    aio_context_t context = 0;
    struct io_event event;
    syscall(SYS_io_setup, 1, &context);
    return syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
}

static long in_msgrcv(void) {
    struct {
        long kind;
        char byte;
    } message;
    return msgrcv(messages, &message, 1, 0, 0);
}

static long in_nanosleep(void) { return syscall(SYS_nanosleep, &hour, NULL); }
static long in_clock_nanosleep(void) { return clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, NULL) ? -1 : 0; }

static long in_poll(void) {
    struct pollfd one = {never[0], POLLIN, 0};
    return syscall(SYS_poll, &one, 1, -1);
}

static long in_ppoll(void) {
    struct pollfd one = {never[0], POLLIN, 0};
    struct timespec limit = hour;
    return syscall(SYS_ppoll, &one, 1, &limit, NULL, 8);
}

static long in_pselect6(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(never[0], &set);
    return pselect(never[0] + 1, &set, NULL, NULL, &hour, NULL);
}

static long in_futex(void) {
    static int word;
    return syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, &hour, NULL, 0);
}

static long in_read(void) {
    char byte;
    return read(never[0], &byte, 1);
}

static long in_eventfd(void) {
    uint64_t count;
    return read(eventfd(0, 0), &count, sizeof count);
}

static long in_timerfd(void) {
    uint64_t count;
    return read(timerfd_create(CLOCK_MONOTONIC, 0), &count, sizeof count);
}

static long in_write(void) {
    static char page[4096];
    int full[2];
    if (pipe2(full, O_NONBLOCK) != 0)
        return 0;
    while (write(full[1], page, sizeof page) > 0)
        ;
    fcntl(full[1], F_SETFL, 0);
    return write(full[1], page, 1);
}

static long in_pause(void) { return pause(); }

static long in_sigsuspend(void) {
    sigset_t none;
    sigfillset(&none);
    return sigsuspend(&none);
}

static const struct {
    const char *call;
    long (*wait)(void);
} kinds[] = {
    {"epoll_wait", in_epoll_wait},
    {"recvfrom", in_recv_with_a_limit},
    {"recvfrom", in_recv},
    {"rt_sigtimedwait", in_sigtimedwait},
    {"semop", in_semop},
    {"semtimedop", in_semtimedop},
    {"io_getevents", in_io_getevents},
    {"msgrcv", in_msgrcv},
    {"nanosleep", in_nanosleep},
    {"clock_nanosleep", in_clock_nanosleep},
    {"poll", in_poll},
    {"ppoll", in_ppoll},
    {"pselect6", in_pselect6},
    {"futex", in_futex},
    {"read", in_read},
    {"read", in_eventfd},
    {"read", in_timerfd},
    {"write", in_write},
    {"pause", in_pause},
    {"rt_sigsuspend", in_sigsuspend},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static pid_t tids[KINDS];
static pthread_barrier_t begun;
static atomic_int ending;

static void *waits(void *number) {
    size_t at = (size_t)number;
    prctl(PR_SET_NAME, kinds[at].call);
    tids[at] = (pid_t)syscall(SYS_gettid);
    pthread_barrier_wait(&begun);
    errno = 0;
    long result = kinds[at].wait();
    while (atomic_load(&ending))
        pause();
    printf("%s returned %ld: %s\n", kinds[at].call, result, strerror(errno));
    fflush(stdout);
    _exit(1);
}

/* Whether the kernel says that the thread sleeps inside a system call. */
static int sleeps(pid_t tid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t read = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    char *after = read ? strrchr(text, ')') : NULL;
    return after && after[2] == 'S';
}

int main(void) {
    char line[16];
    sigset_t set = usr2();
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (pipe(never) != 0 || (semaphore = semget(IPC_PRIVATE, 1, 0600)) < 0 || (messages = msgget(IPC_PRIVATE, 0600)) < 0)
        return 3;
    pthread_barrier_init(&begun, NULL, KINDS + 1);
    for (size_t i = 0; i < KINDS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, waits, (void *)i);
    }
    pthread_barrier_wait(&begun);
    for (size_t i = 0; i < KINDS; i++)
        while (!sleeps(tids[i]))
            usleep(1000);
    printf("ready %zu\n", KINDS);
    fflush(stdout);
    int ended = fgets(line, sizeof line, stdin) != NULL;
    /* What the kernel keeps beyond the process goes first, which ends two of the calls. */
    atomic_store(&ending, 1);
    semctl(semaphore, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, NULL);
    _exit(ended ? 0 : 2);
}
