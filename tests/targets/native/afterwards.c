/* A program that is recorded for a part of its life, and looks at what is left of that afterwards: at its timers, its dispositions in the
   kernel and its mappings, as the kernel reports them.
   Usage: afterwards ended|killed|outlives|unrecorded
     ended       waits for the end of the recording
     killed      kills the recorder first
     outlives    a child does this, and the main program ends
     unrecorded  a child does this, which is not recorded */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t own_ticks;

static void on_alarm(int number) {
    (void)number;
    own_ticks++;
}

static void on_fault(int number) {
    _exit(number);
}

static void start_timer(void) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec period = {{0, 10000000}, {0, 10000000}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &period, 0);
}

/* Before any library's constructor, so that the program's own timer has the id 0. */
static void first_of_all(void) {
    start_timer();
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = first_of_all;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void burn(double seconds) {
    for (double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds; now(CLOCK_THREAD_CPUTIME_ID) < end;)
        ;
}

/* Lines of a file of /proc/self that have this text. */
static int lines_with(const char *path, const char *text) {
    FILE *file = fopen(path, "r");
    char line[4096];
    int count = 0;
    while (file && fgets(line, sizeof line, file))
        count += strstr(line, text) != 0;
    if (file)
        fclose(file);
    return count;
}

static int session_is_mapped(void) {
    return lines_with("/proc/self/maps", "uu-session");
}

/* The kernel's struct sigaction. */
struct kernel_action {
    uintptr_t handler, flags, restorer;
    uint64_t mask;
};

static struct kernel_action in_the_kernel(int number) {
    struct kernel_action action = {0};
    syscall(SYS_rt_sigaction, number, 0, &action, 8);
    return action;
}

static sem_t ready;
static volatile int over;
static volatile int masks_kept;

static void *burner(void *argument) {
    sem_post(&ready);
    while (!over)
        burn(0.001);
    return argument;
}

static void *blocking_burner(void *argument) {
    sigset_t all, seen;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    burner(0);
    pthread_sigmask(SIG_SETMASK, 0, &seen);
    masks_kept = sigismember(&seen, SIGPROF) && sigismember(&seen, SIGSTKFLT) && sigismember(&seen, SIGUSR1);
    return argument;
}

static int wakeup[2];

static void *idle(void *argument) {
    char byte;
    sem_post(&ready);
    return read(wakeup[0], &byte, 1) == 1 ? argument : 0;
}

/* Waits until nothing is left, for at most a minute, and prints what is left. */
static int look(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF, SIGSTKFLT};
    double end = now(CLOCK_MONOTONIC) + 60;
    while (session_is_mapped() && now(CLOCK_MONOTONIC) < end)
        burn(0.01);
    printf("session mapped: %d\n", session_is_mapped());
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct kernel_action action;
        do
            action = in_the_kernel(numbers[i]);
        while (numbers[i] != SIGBUS && action.handler != 0 && now(CLOCK_MONOTONIC) < end);
        int own = action.handler == (uintptr_t)on_fault && action.flags == (SA_RESETHAND | 0x04000000);
        printf("%d: %s\n", numbers[i], action.handler == 0 ? "default" : own ? "own" : "another's");
    }
    while (lines_with("/proc/self/timers", "notify:") > 1 && now(CLOCK_MONOTONIC) < end)
        burn(0.01);
    printf("timers: %d\n", lines_with("/proc/self/timers", "notify:"));
    for (int seen = own_ticks; own_ticks < seen + 5 && now(CLOCK_MONOTONIC) < end;)
        ;
    printf("in time: %d\n", now(CLOCK_MONOTONIC) < end);
    struct sigaction action = {.sa_handler = on_fault}, old;
    sigaction(SIGSEGV, &action, &old);
    printf("set: %d, was: %d\n", in_the_kernel(SIGSEGV).handler == (uintptr_t)on_fault, old.sa_handler == SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    return 0;
}

static int in_child(int wait_for_it) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        start_timer();
        exit(look());
    }
    if (wait_for_it)
        waitpid(child, 0, 0);
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *session = getenv("UU_SESSION");
    printf("recorded: %d\n", !session || session_is_mapped());
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_RESETHAND};
    sigaction(SIGBUS, &action, 0);
    pthread_t threads[4];
    if (pipe(wakeup) != 0)
        return 1;
    sem_init(&ready, 0, 0);
    pthread_create(&threads[0], 0, burner, 0);
    pthread_create(&threads[1], 0, burner, 0);
    pthread_create(&threads[2], 0, blocking_burner, 0);
    pthread_create(&threads[3], 0, idle, 0);
    for (int i = 0; i < 4; i++)
        while (sem_wait(&ready) != 0)
            ;
    burn(0.1);
    if (strcmp(mode, "killed") == 0 && session)
        kill(atoi(session), SIGKILL);
    if (strcmp(mode, "outlives") == 0)
        return in_child(0);
    if (strcmp(mode, "unrecorded") == 0)
        return in_child(1);
    look();
    over = 1;
    if (write(wakeup[1], "x", 1) != 1)
        return 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    printf("masks kept: %d\n", masks_kept);
    return 0;
}
