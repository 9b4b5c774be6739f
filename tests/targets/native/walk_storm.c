/* For a program in any language: a timer's signal, whose handler walks the interrupted stack by uu_walk() and gives it an
   id. storm_take() hands out the distinct stacks afterwards. The handler has the mask by which watch_calls.c recognises it. */
#define _GNU_SOURCE
#include "handler_mask.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <uu.h>

#define MOST 65536
struct stack { uint32_t id; uint16_t stop, doubt; };
static struct stack stacks[MOST];
static atomic_uint used;
static unsigned taken;

static int (*walk)(struct uu_request *);
static uint32_t (*stack_id)(const uint64_t *, size_t);
static size_t (*stack_frames)(uint32_t, uint64_t *, size_t);

static timer_t fast_timer;
/* 10,000 times a second where walks take no time; once, so that the program goes on where they take long. */
static int start_timer(void) {
    struct itimerspec next = {.it_value.tv_nsec = 100000};
    return timer_settime(fast_timer, 0, &next, 0);
}

static void on_timer(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    uint64_t frames[2048];
    struct uu_request request = {.size = sizeof request, .ucontext = ucontext, .frames = frames, .capacity = 2048};
    if (walk(&request) != 0)
        request.stop = 0xffff;
    unsigned at = atomic_fetch_add(&used, 1);
    if (at < MOST)
        stacks[at] = (struct stack){stack_id(frames, request.words), request.stop, request.doubt};
    start_timer();
}

static double since;
static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int storm_begin(void *library) {
    *(void **)&walk = dlsym(library, "uu_walk");
    *(void **)&stack_id = dlsym(library, "uu_stack_id");
    *(void **)&stack_frames = dlsym(library, "uu_stack_frames");
    if (!walk || !stack_id || !stack_frames)
        return 1;
    used = taken = 0;
    since = cpu();
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, 0);
    block_all();
    /* In one thread, and at each tick in those that run. */
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerval timer = {{0, 100}, {0, 100}};
    return timer_create(CLOCK_MONOTONIC, &event, &fast_timer) || start_timer() || setitimer(ITIMER_PROF, &timer, 0);
}

void storm_end(void) {
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &none, 0);
    timer_delete(fast_timer);
    signal(SIGPROF, SIG_IGN);
}

/* Whether the process has used this CPU time since the storm began. */
int storm_is_over(double seconds) { return cpu() > since + seconds; }

/* The next stack: its words, their number (0: there is none left), and how many like it are taken with it. */
size_t storm_take(uint64_t *words, size_t capacity, uint16_t *stop, uint16_t *doubt, uint64_t *times) {
    unsigned end = used < MOST ? used : MOST;
    if (taken >= end)
        return 0;
    struct stack first = stacks[taken];
    *times = 0;
    while (taken < end && memcmp(&stacks[taken], &first, sizeof first) == 0) {
        (*times)++;
        taken++;
    }
    *stop = first.stop;
    *doubt = first.doubt;
    size_t count = first.id ? stack_frames(first.id, words, capacity) : 0;
    return count ? count : storm_take(words, capacity, stop, doubt, times);
}
