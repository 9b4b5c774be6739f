/* A program that uses signals itself. Prints the same with and without the profiler.
   Usage: signals wait|interrupts|itimer|held|flood|barrier|dispositions|ignored|cancel|waits_its_turn|merged [NUMBER]
   NUMBER is the signal that the program uses for itself: SIGPROF, unless it is given. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The program's own signal. */
static int own = SIGPROF;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void burn(double seconds) {
    for (double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds; now(CLOCK_THREAD_CPUTIME_ID) < end;)
        ;
}

static void *burner(void *argument) {
    burn(0.5);
    return argument;
}

/* A thread that waits for all signals must not be woken by the profiler's. */
static int wait_for_all(void) {
    sigset_t all, pending;
    sigfillset(&all);
    pthread_t other;
    pthread_create(&other, 0, burner, 0);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    burn(0.2);
    sigpending(&pending);
    printf("pending SIGPROF: %d\n", sigismember(&pending, own));
    int fd = signalfd(-1, &all, SFD_NONBLOCK);
    struct signalfd_siginfo info;
    printf("signalfd: %zd\n", read(fd, &info, sizeof info));
    struct timespec limit = {.tv_nsec = 300000000};
    siginfo_t got;
    int number = sigtimedwait(&all, &got, &limit);
    printf("sigtimedwait: %d errno %d\n", number, number < 0 ? errno : 0);
    pthread_kill(pthread_self(), SIGUSR1);
    number = sigwaitinfo(&all, &got);
    printf("sigwaitinfo: %d\n", number);
    pthread_join(other, 0);
    return 0;
}

/* Blocking calls are not interrupted by the profiler. */
static int interrupts(void) {
    pthread_t other;
    pthread_create(&other, 0, burner, 0);
    int interrupted = 0;
    for (int i = 0; i < 200; i++) {
        struct timespec pause = {.tv_nsec = 2000000};
        burn(0.003);
        interrupted += nanosleep(&pause, 0) != 0;
        interrupted += poll(0, 0, 2) < 0;
    }
    pthread_join(other, 0);
    printf("interrupted: %d\n", interrupted);
    return 0;
}

static volatile sig_atomic_t ticks, wrong;

static void on_prof(int number, siginfo_t *info, void *context) {
    ticks++;
    wrong += number != SIGPROF || info->si_code != SI_KERNEL || !context;
}

/* The program's own profiling timer, and its own handler for it. */
static int own_itimer(void) {
    struct sigaction action = {.sa_sigaction = on_prof, .sa_flags = SA_SIGINFO | SA_RESTART}, old, check;
    sigaction(SIGPROF, &action, &old);
    sigaction(SIGPROF, 0, &check);
    printf("before: %d, kept: %d, flags kept: %d\n", old.sa_handler == SIG_DFL, check.sa_sigaction == on_prof,
        (check.sa_flags & SA_RESTART) != 0);
    struct itimerval timer = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}};
    setitimer(ITIMER_PROF, &timer, 0);
    burn(1.0);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_PROF, &timer, 0);
    /* 50 are due on a quiet machine; on a busy one the kernel gives more or fewer. */
    printf("ticks: %s, wrong: %d\n", ticks >= 5 && ticks <= 100 ? "as due" : "not as due", (int)wrong);
    return 0;
}

/* A thread with little stack. */
static void on_small_stack(void *(*function)(void *)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    pthread_t thread;
    pthread_create(&thread, &attributes, function, 0);
    pthread_join(thread, 0);
}

static void on_queued(int number, siginfo_t *info, void *context) {
    ticks++;
    wrong += number != own || info->si_code != SI_QUEUE || info->si_value.sival_int != 77 || !context;
}

/* A signal that the thread blocks waits, and comes as it was sent. */
static void *hold(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, own);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    union sigval value = {.sival_int = 77};
    pthread_sigqueue(pthread_self(), own, value);
    burn(0.1);
    struct sigaction action = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(own, &action, 0);
    printf("came already: %d\n", (int)ticks);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    printf("came: %d, wrong: %d\n", (int)ticks, (int)wrong);
    return argument;
}

static int held(void) {
    burn(0.1);
    on_small_stack(hold);
    return 0;
}

/* Signals of the program's own, as fast as they can be sent, some of them while the profiler walks. */
static pthread_t flooded;
static volatile int over;

static void *flood_from_outside(void *argument) {
    union sigval value = {.sival_int = 77};
    while (!over)
        pthread_sigqueue(flooded, own, value);
    return argument;
}

__attribute__((noinline)) static int deep(int levels) {
    int below = 0;
    if (levels > 0)
        below = deep(levels - 1);
    else
        burn(1.0);
    __asm__ volatile("");
    return below + 1;
}

static void *be_flooded(void *argument) {
    flooded = pthread_self();
    pthread_t other;
    pthread_create(&other, 0, flood_from_outside, 0);
    int depth = deep(300);
    over = 1;
    pthread_join(other, 0);
    printf("depth %d, signals: %d, wrong: %d\n", depth, ticks > 0, (int)wrong);
    return argument;
}

static int flood(void) {
    struct sigaction action = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(own, &action, 0);
    on_small_stack(be_flooded);
    return 0;
}

static char *memory;
static volatile int faults;

static void on_segv(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    if (page < memory || page >= memory + 4096 * 1000)
        _exit(9);
    faults++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

/* A write barrier by page protection, as garbage collectors have it. */
static int barrier(void) {
    struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    memory = mmap(0, 4096 * 1000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 20; round++) {
        mprotect(memory, 4096 * 1000, PROT_READ);
        for (int i = 0; i < 1000; i++) {
            memory[i * 4096] = 1;
            burn(0.00003);
        }
    }
    printf("faults: %d\n", faults);
    return 0;
}

static void nothing(int number) {
    (void)number;
}

/* What sigaction and signal report for the signals that the profiler uses. */
static int dispositions(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF, SIGSTKFLT, SIGTRAP, SIGUSR1};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int number = numbers[i];
        struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART | SA_NODEFER}, old, got;
        sigaddset(&action.sa_mask, SIGUSR2);
        sigaction(number, &action, &old);
        sigaction(number, 0, &got);
        int first = old.sa_handler == SIG_DFL;
        int kept = got.sa_handler == nothing && sigismember(&got.sa_mask, SIGUSR2) && !sigismember(&got.sa_mask, SIGINT);
        int flags = (got.sa_flags & ~0x04000000) == (SA_RESTART | SA_NODEFER);
        int by_signal = signal(number, SIG_IGN) == nothing;
        int ignored = signal(number, SIG_DFL) == SIG_IGN;
        printf("%d: first %d kept %d flags %d signal() %d ignored %d\n", number, first, kept, flags, by_signal, ignored);
    }
    int refused = sigaction(65, 0, 0);
    printf("bad number: %d errno %d\n", refused, errno);
    return 0;
}

/* Its signal ignored by the program, then sent to itself: nothing happens. With the default action it would die. */
static int ignored(void) {
    signal(own, SIG_IGN);
    raise(own);
    struct itimerval timer = {.it_interval = {.tv_usec = 5000}, .it_value = {.tv_usec = 5000}};
    if (own == SIGPROF)
        setitimer(ITIMER_PROF, &timer, 0);
    burn(0.1);
    printf("alive\n");
    return 0;
}

static void *endless(void *argument) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (volatile long i = 0;; i++)
        ;
    return argument;
}

/* Threads that are cancelled at any instruction, also inside the profiler's handler. */
static int cancelled(void) {
    int count = 0;
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, endless, 0);
        usleep(3000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        count += result == PTHREAD_CANCELED;
    }
    printf("cancelled: %d\n", count);
    return 0;
}

static sem_t blocked_all;
static int wakeup[2];
static pthread_t first_thread;
static volatile sig_atomic_t on_first, elsewhere;

static void on_own(int number) {
    (void)number;
    if (pthread_equal(pthread_self(), first_thread))
        on_first++;
    else
        elsewhere++;
}

/* Blocks all signals before there is a handler, and waits in a system call. */
static void *blocks_all(void *argument) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    sem_post(&blocked_all);
    char byte;
    long got = read(wakeup[0], &byte, 1);
    (void)argument;
    return (void *)got;
}

/* A signal sent to the process while all threads block it waits for the first one that does not. */
static int waits_its_turn(void) {
    first_thread = pthread_self();
    sem_init(&blocked_all, 0, 0);
    pthread_t others[3];
    if (pipe(wakeup) != 0)
        return 1;
    for (int i = 0; i < 3; i++) {
        pthread_create(&others[i], 0, blocks_all, 0);
        sem_wait(&blocked_all);
    }
    struct sigaction action = {.sa_handler = on_own, .sa_flags = own == SIGPROF ? 0 : SA_RESTART};
    sigaction(own, &action, 0);
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, own);
    int early = 0, late = 0;
    for (int i = 1; i <= 100; i++) {
        pthread_sigmask(SIG_BLOCK, &set, &before);
        kill(getpid(), own);
        burn(0.001);
        early += on_first + elsewhere != i - 1;
        pthread_sigmask(SIG_SETMASK, &before, 0);
        /* The other threads may have it for a moment, where each of them must give it back first. */
        for (double end = now(CLOCK_MONOTONIC) + 10; on_first + elsewhere < i && now(CLOCK_MONOTONIC) < end;)
            ;
        late += on_first != i;
    }
    printf("too early: %d, not on the thread that takes it: %d\n", early, late);
    if (write(wakeup[1], "xxx", 3) != 3)
        return 1;
    for (int i = 0; i < 3; i++) {
        void *got;
        pthread_join(others[i], &got);
        printf("read: %ld\n", (long)got);
    }
    return 0;
}

/* What the program sends itself while it blocks the signal, and uses much CPU time, comes when it unblocks it. */
static int merged(void) {
    first_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_own};
    sigaction(own, &action, 0);
    sigset_t set, before, pending;
    sigemptyset(&set);
    sigaddset(&set, own);
    int lost = 0, falsely = 0;
    for (int i = 1; i <= 60; i++) {
        pthread_sigmask(SIG_BLOCK, &set, &before);
        burn(0.012);
        sigpending(&pending);
        falsely += sigismember(&pending, own);
        union sigval value = {.sival_int = 77};
        if (i % 3 == 0)
            raise(own);
        else if (i % 3 == 1)
            kill(getpid(), own);
        else
            pthread_sigqueue(pthread_self(), own, value);
        pthread_sigmask(SIG_SETMASK, &before, 0);
        lost += on_first != i;
        on_first = i;
    }
    printf("lost: %d, falsely pending: %d\n", lost, falsely);
    return 0;
}

int main(int argc, char **argv) {
    static const struct { const char *name; int (*run)(void); } all[] = {
        {"wait", wait_for_all}, {"interrupts", interrupts}, {"itimer", own_itimer}, {"held", held}, {"flood", flood}, {"barrier", barrier},
        {"dispositions", dispositions}, {"ignored", ignored}, {"cancel", cancelled}, {"waits_its_turn", waits_its_turn}, {"merged", merged},
    };
    if (argc > 2)
        own = atoi(argv[2]);
    for (unsigned i = 0; argc > 1 && i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0)
            return all[i].run();
    return 2;
}
