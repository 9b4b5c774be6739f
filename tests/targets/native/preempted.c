/* Coroutines that a handler switches between at any instruction, of captures, too.

   Usage: preempted stepped ROUNDS | timer CAPTURES. Stepped: a capture is stopped at one of its instructions by the trap flag, and the other
   coroutine captures before it goes on. By timer: SIGPROF does the same wherever it comes. The coroutine that captures meanwhile has its stack above
   the other's in every second round. Prints how many captures and switches there were, and how many stacks were wrong. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include "shadow.h"

enum { STACK = 1 << 18, TRAP_FLAG = 0x100 };

static ucontext_t contexts[2], done;
static sigset_t timer_signal;
static struct shadow shadows[2];
static volatile int now, steps_left, stepping;
static volatile long switches;
static long wanted;
static unsigned seed = 1;

static unsigned below(unsigned limit) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 12) % limit;
}

static void go_to(int other) {
    const int own = now;
    now = other;
    swapcontext(&contexts[own], &contexts[other]);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)info;
    if (number == SIGTRAP) {
        if (!stepping || steps_left-- > 0)
            return;
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        stepping = 0;
    }
    switches++;
    go_to(!now);
}

static void step(void) {
    if (now != 0 || below(3))
        return;
    steps_left = (int)below(900);
    stepping = 1;
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" ::"i"(TRAP_FLAG) : "cc", "memory");
}

static void stop_stepping(void) {
    __asm__ volatile("pushfq; andq %0, (%%rsp); popfq" ::"i"(~TRAP_FLAG) : "cc", "memory");
    stepping = 0;
}

/* The coroutine that is executed stepwise. */
static void stepped(void) {
    for (long round = 0; round < wanted; round++)
        shadow_run(&shadows[0], 0);
    setcontext(&done);
}

/* The coroutine that captures while the other one is suspended. */
static void meanwhile(void) {
    for (;;) {
        for (unsigned times = 1 + below(3); times; times--)
            shadow_run(&shadows[1], (int)below(2));
        go_to(0);
    }
}

/* A context that a handler enters first must block the handler's signal until it has its own stack: swapcontext sets the new mask while it still has
   the old stack, and a signal there would save the old stack as the new context's. */
static void by_timer(int which) {
    sigprocmask(SIG_UNBLOCK, &timer_signal, 0);
    while (shadows[0].captures + shadows[1].captures < wanted)
        shadow_run(&shadows[which], which);
    setcontext(&done);
}

int main(int count, char **arguments) {
    const int by_steps = count > 1 && !strcmp(arguments[1], "stepped");
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    char *stacks = mmap(0, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    volatile int order = 0;
    wanted = count > 2 ? atol(arguments[2]) : 1000;
    if (stacks == MAP_FAILED || uu_handle_faults() || sigaction(by_steps ? SIGTRAP : SIGPROF, &action, 0))
        return 2;
    sigemptyset(&timer_signal);
    sigaddset(&timer_signal, SIGPROF);
    for (; order < 2; order++) {
        volatile int over = 0;
        shadows[0].captures = shadows[1].captures = 0;
        for (int i = 0; i < 2; i++) {
            shadows[i].seed = (unsigned)(i * 77 + 5 + order);
            getcontext(&contexts[i]);
            contexts[i].uc_stack.ss_sp = stacks + (i ^ order) * STACK;
            contexts[i].uc_stack.ss_size = STACK;
            if (!by_steps)
                sigaddset(&contexts[i].uc_sigmask, SIGPROF);
            if (by_steps)
                makecontext(&contexts[i], i ? meanwhile : stepped, 0);
            else
                makecontext(&contexts[i], (void (*)(void))by_timer, 1, i);
        }
        shadows[0].before = by_steps ? step : 0;
        shadows[0].after = by_steps ? stop_stepping : 0;
        now = 0;
        getcontext(&done);
        if (!over) {
            over = 1;
            if (!by_steps)
                setitimer(ITIMER_PROF, &often, 0);
            setcontext(&contexts[0]);
        }
        setitimer(ITIMER_PROF, &never, 0);
        printf("captures %ld switches %ld wrong %ld\n", shadows[0].captures + shadows[1].captures, switches, shadows[0].wrong + shadows[1].wrong);
    }
    return 0;
}
