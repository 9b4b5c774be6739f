/* Threads that wait, one in each kind of system call, for looks from outside. Each thread has the call's name. No call
   ever ends by itself: one that returns was interrupted, and the program says which and ends with 1. It writes "ready N",
   N being the number of these threads, when all of them wait; "end" on standard input ends it with 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <mqueue.h>
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
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct timespec hour = {3600, 0};
static int never[2], semaphore, messages, full_queue;

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

static long in_select(void) {
    fd_set set;
    struct timeval limit = {3600, 0};
    FD_ZERO(&set);
    FD_SET(never[0], &set);
    return syscall(SYS_select, never[0] + 1, &set, NULL, NULL, &limit);
}

static int events(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, never[0], &event);
    return epoll;
}

static long in_epoll_pwait(void) {
    struct epoll_event event;
    sigset_t set = usr2();
    return epoll_pwait(events(), &event, 1, -1, &set);
}

static long in_epoll_pwait2(void) {
    struct epoll_event event;
    return syscall(SYS_epoll_pwait2, events(), &event, 1, &hour, NULL, 8);
}

/* One byte, for calls that take several buffers. */
static struct iovec one_byte(void) {
    static char byte;
    return (struct iovec){&byte, 1};
}

static long in_recvmsg(void) {
    struct iovec into = one_byte();
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1};
    return recvmsg(half_of_pair(), &message, 0);
}

static long in_recvmmsg(void) {
    struct iovec into = one_byte();
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &into, .msg_iovlen = 1}};
    return recvmmsg(half_of_pair(), &message, 1, 0, NULL);
}

/* A socket that listens, under a name that the kernel chooses; nobody takes what connects. */
static int listener(struct sockaddr_un *name, socklen_t *len) {
    int socket_of = socket(AF_UNIX, SOCK_STREAM, 0);
    *len = sizeof *name;
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    bind(socket_of, (struct sockaddr *)name, sizeof name->sun_family);
    getsockname(socket_of, (struct sockaddr *)name, len);
    listen(socket_of, 0);
    return socket_of;
}

static long in_accept(void) {
    struct sockaddr_un name;
    socklen_t len;
    return syscall(SYS_accept, listener(&name, &len), NULL, NULL);
}

static long in_accept_with_a_limit(void) {
    struct sockaddr_un name;
    socklen_t len;
    struct timeval limit = {3600, 0};
    int socket_of = listener(&name, &len);
    setsockopt(socket_of, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return accept4(socket_of, NULL, NULL, 0);
}

static long in_connect(void) {
    struct sockaddr_un name;
    socklen_t len;
    listener(&name, &len);
    /* Where one waits already. */
    if (connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, len) != 0)
        return 0;
    return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, len);
}

/* A socket with no room for more. */
static int full_socket(void) {
    static char page[4096];
    int half = half_of_pair();
    while (send(half, page, sizeof page, MSG_DONTWAIT) > 0)
        ;
    while (send(half, page, 1, MSG_DONTWAIT) > 0)
        ;
    return half;
}

static long in_sendto_with_a_limit(void) {
    static char page[65536];
    struct timeval limit = {3600, 0};
    int half = full_socket();
    setsockopt(half, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return send(half, page, sizeof page, 0);
}

static long in_sendmsg(void) {
    struct iovec from = one_byte();
    struct msghdr message = {.msg_iov = &from, .msg_iovlen = 1};
    return sendmsg(full_socket(), &message, 0);
}

static long in_readv(void) {
    struct iovec into = one_byte();
    return readv(never[0], &into, 1);
}

static long in_splice(void) {
    int other[2];
    return pipe(other) == 0 ? splice(never[0], NULL, other[1], NULL, 1, 0) : 0;
}

static long in_tee(void) {
    int other[2];
    return pipe(other) == 0 ? tee(never[0], other[1], 1, 0) : 0;
}

/* Two descriptions of one open file. */
static int twice_open(int *first) {
    char path[64];
    *first = memfd_create("waits", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", *first);
    return open(path, O_RDWR);
}

static long in_flock(void) {
    int first, second = twice_open(&first);
    flock(first, LOCK_EX);
    return flock(second, LOCK_EX);
}

static long in_fcntl(void) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int first, second = twice_open(&first);
    fcntl(first, F_OFD_SETLK, &whole);
    return fcntl(second, F_OFD_SETLKW, &whole);
}

static long in_msgsnd(void) {
    static struct {
        long kind;
        char text[4096];
    } message = {.kind = 1};
    while (msgsnd(full_queue, &message, sizeof message.text, IPC_NOWAIT) == 0)
        ;
    return msgsnd(full_queue, &message, sizeof message.text, 0);
}

/* A queue of POSIX for one message, without a name. */
static mqd_t queue(const char *name) {
    char path[64];
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 1};
    snprintf(path, sizeof path, "/uu-waits-%s-%d", name, getpid());
    mqd_t opened = mq_open(path, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    mq_unlink(path);
    return opened;
}

static long in_mq_timedreceive(void) {
    char byte;
    return mq_receive(queue("receive"), &byte, 1, NULL);
}

static long in_mq_timedsend(void) {
    mqd_t full = queue("send");
    return mq_send(full, "x", 1, 0) == 0 ? mq_send(full, "x", 1, 0) : 0;
}

/* A child that ends with this process. */
static pid_t child(void) {
    pid_t own = getpid(), made = fork();
    if (made == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == own) /* it may have ended before */
            pause();
        _exit(0);
    }
    return made;
}

static long in_wait4(void) { return wait4(child(), NULL, 0, NULL); }

static long in_waitid(void) {
    siginfo_t info;
    return waitid(P_PID, (id_t)child(), &info, WEXITED | WNOWAIT) == 0 ? 1 : -1;
}

/* A FIFO that nobody writes to. It has no name any more, but can be opened more than once. */
static long in_openat(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/uu-waits-%d", getpid());
    int fifo = mkfifo(path, 0600) == 0 ? open(path, O_PATH) : -1;
    unlink(path);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fifo);
    return openat(AT_FDCWD, path, O_RDONLY);
}

static long in_io_pgetevents(void) {
    aio_context_t context = 0;
    struct io_event event;
    syscall(SYS_io_setup, 1, &context);
    return syscall(SYS_io_pgetevents, context, 1, 1, &event, &hour, NULL);
}

static long in_signalfd(void) {
    struct signalfd_siginfo info;
    sigset_t set = usr2();
    return read(signalfd(-1, &set, 0), &info, sizeof info);
}

static long in_inotify(void) {
    char event[512];
    return read(inotify_init1(0), event, sizeof event);
}

static long in_bitset(void) {
    static int word;
    return syscall(SYS_futex, &word, 9 /* FUTEX_WAIT_BITSET */, 0, NULL, NULL, ~0u);
}

static long in_absolute_nanosleep(void) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += 3600;
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) ? -1 : 0;
}

static long in_sigwaitinfo(void) {
    sigset_t set = usr2();
    return sigwaitinfo(&set, NULL);
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
    {"select", in_select},
    {"epoll_pwait", in_epoll_pwait},
    {"epoll_pwait2", in_epoll_pwait2},
    {"recvmsg", in_recvmsg},
    {"recvmmsg", in_recvmmsg},
    {"accept", in_accept},
    {"accept4", in_accept_with_a_limit},
    {"connect", in_connect},
    {"sendto", in_sendto_with_a_limit},
    {"sendmsg", in_sendmsg},
    {"readv", in_readv},
    {"splice", in_splice},
    {"tee", in_tee},
    {"flock", in_flock},
    {"fcntl", in_fcntl},
    {"msgsnd", in_msgsnd},
    {"mq_timedreceive", in_mq_timedreceive},
    {"mq_timedsend", in_mq_timedsend},
    {"wait4", in_wait4},
    {"waitid", in_waitid},
    {"openat", in_openat},
    {"io_pgetevents", in_io_pgetevents},
    {"read", in_signalfd},
    {"read", in_inotify},
    {"futex", in_bitset},
    {"clock_nanosleep", in_absolute_nanosleep},
    {"rt_sigtimedwait", in_sigwaitinfo},
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
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    messages = msgget(IPC_PRIVATE, 0600), full_queue = msgget(IPC_PRIVATE, 0600);
    if (pipe(never) != 0 || semaphore < 0 || messages < 0 || full_queue < 0)
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
    /* What the kernel keeps beyond the process goes first, which ends some of the calls. */
    atomic_store(&ending, 1);
    semctl(semaphore, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, NULL);
    msgctl(full_queue, IPC_RMID, NULL);
    _exit(ended ? 0 : 2);
}
