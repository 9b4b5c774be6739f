/* Faults of a program's own, in all the ways in which it may handle them; prints the same with and without the profiler.
   Usage: faults before|after|inside|inside-alternate|blocked|small|overflow|children|left|strict|depth */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

NOINLINE static unsigned burn(double seconds) {
    unsigned n = 1;
    for (double end = cpu() + seconds; cpu() < end;)
        for (int i = 0; i < 1000; i++)
            n = n * 1664525u + 1013904223u;
    return n;
}

/* Writes to an address that is never mapped; the handlers below expect it. */
static char *const nowhere = (char *)0x40;

NOINLINE static void touch(void) {
    *(volatile char *)nowhere = 1;
    __asm__ volatile("nop");
}

/* No system call, and no clock: about as long on every machine. */
NOINLINE static unsigned burn_quietly(void) {
    unsigned n = 1;
    for (int i = 0; i < 300000000; i++) {
        n = n * 1664525u + 1013904223u;
        __asm__ volatile("" : "+r"(n));
    }
    return n;
}

/* Faults, and continues after the instruction. */
extern const char after_touch[];
NOINLINE static void touch_and_go(void) {
    __asm__ volatile("movb $1, 0x40\n.globl after_touch\nafter_touch:" ::: "memory");
}

static sigjmp_buf back;
static volatile sig_atomic_t reported;
static double burn_inside;

/* Prints a handler's arguments, and the state in which it runs. */
static void report(int number, siginfo_t *info, void *context) {
    sigset_t blocked;
    stack_t stack;
    void *frames[100];
    char names[300] = "";
    pthread_sigmask(SIG_BLOCK, 0, &blocked);
    for (int i = 1; i <= 64; i++)
        if (i != SIGPROF && sigismember(&blocked, i) == 1)
            snprintf(names + strlen(names), 8, " %d", i);
    sigaltstack(0, &stack);
    printf("signal %d code %d address %d blocked%s, on the alternate stack %d, frames %d\n", number, info ? info->si_code : -1,
        info ? (char *)info->si_addr == nowhere : -1, names, (stack.ss_flags & SS_ONSTACK) != 0, backtrace(frames, 100));
    reported++;
    if (context)
        burn(burn_inside);
}

static void jumps(int number, siginfo_t *info, void *context) {
    report(number, info, context);
    siglongjmp(back, 1);
}

static void jumps_simple(int number) {
    report(number, 0, 0);
    siglongjmp(back, 1);
}

/* Steps over the instruction: movb $1, 0x40 has eight bytes. */
static void steps_over(int number, siginfo_t *info, void *context) {
    report(number, info, context);
    greg_t *pc = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    while (*(unsigned char *)*pc != 0x90)
        ++*pc;
}

static void faults_once(const char *what) {
    printf("%s: ", what);
    burn(0.05);
    if (sigsetjmp(back, 1) == 0)
        touch();
    burn(0.05);
}

static void set(int flags, void (*handler)(int, siginfo_t *, void *), int also) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    if (also)
        sigaddset(&action.sa_mask, also);
    if (sigaction(SIGSEGV, &action, 0))
        exit(4);
}

static void alternate(size_t size) {
    stack_t stack = {.ss_sp = malloc(size), .ss_size = size};
    if (sigaltstack(&stack, 0))
        exit(5);
}

static int after(void) {
    set(0, steps_over, 0);
    faults_once("steps over");
    set(0, jumps, SIGUSR1);
    faults_once("jumps");
    set(SA_NODEFER, jumps, 0);
    faults_once("not deferred");
    set(SA_RESETHAND, jumps, 0);
    faults_once("once");
    struct sigaction now;
    sigaction(SIGSEGV, 0, &now);
    printf("reset %d\n", now.sa_handler == SIG_DFL);
    alternate(1 << 16);
    set(SA_ONSTACK, jumps, 0);
    faults_once("alternate stack");
    signal(SIGSEGV, jumps_simple);
    faults_once("signal()");
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, 0, &blocked);
    printf("still blocked %d\n", sigismember(&blocked, SIGSEGV));
    return reported == 6 ? 0 : 1;
}

/* The handler was installed by a constructor that ran before any preloaded object's (faults_early.c). */
void early_jump(void (*how)(int, siginfo_t *, void *));
#pragma weak early_jump

static int before(void) {
    early_jump(jumps);
    faults_once("before");
    faults_once("again");
    return reported == 2 ? 0 : 1;
}

static int inside(void) {
    burn_inside = 0.3;
    set(SA_ONSTACK, jumps, 0);
    faults_once("inside");
    return 0;
}

static int inside_alternate(void) {
    alternate(1 << 16);
    return inside();
}

static void *burner(void *argument) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    burn(0.4);
    /* As libraries that make their own system calls have it: all but the one that the profiler needs. */
    uint64_t most = ~(1ull << (SIGSTKFLT - 1));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &most, 0, 8);
    burn(0.4);
    return argument;
}

static int blocked(void) {
    pthread_t other;
    pthread_create(&other, 0, burner, 0);
    pthread_join(other, 0);
    return 0;
}

static void *with_small_stack(void *size) {
    alternate((size_t)size);
    burn(0.3);
    return 0;
}

/* Alternate stacks that are set, but that no handler uses. */
static int small(void) {
    static const size_t sizes[] = {2048, 4096, 8192};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, with_small_stack, (void *)sizes[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    return 0;
}

NOINLINE static unsigned deeper(unsigned n) {
    volatile char room[1000];
    room[n % 1000] = 1;
    return deeper(n + 1) + (unsigned)room[n % 1000];
}

static void overflowed(int number, siginfo_t *info, void *context) {
    (void)context;
    printf("overflow %d %d\n", number, info->si_code);
    burn(0.1);
    siglongjmp(back, 1);
}

static int overflow(void) {
    alternate(1 << 16);
    set(SA_ONSTACK, overflowed, 0);
    for (int i = 0; i < 3; i++)
        if (sigsetjmp(back, 1) == 0)
            deeper(1);
    return 0;
}

static int wait_for(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/* Children that are not forks of the ordinary kind. */
static int children(void) {
    set(0, jumps, 0);
    signal(SIGPROF, SIG_DFL);
    pid_t child = vfork();
    if (child == 0) {
        /* What it changes is its own, though the memory is not. */
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigset_t all;
        sigfillset(&all);
        sigaction(SIGSEGV, &action, 0);
        signal(SIGFPE, SIG_IGN);
        sigprocmask(SIG_BLOCK, &all, 0);
        sigemptyset(&all);
        sigprocmask(SIG_SETMASK, &all, 0);
        touch();
        _exit(7);
    }
    printf("vfork child: %d\n", wait_for(child));
    faults_once("parent's handler");
    child = _Fork();
    if (child == 0) {
        raise(SIGPROF);
        _exit(7);
    }
    printf("_Fork child: %d\n", wait_for(child));
    child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        if (sigsetjmp(back, 1) == 0)
            touch();
        fflush(stdout);
        raise(SIGFPE);
        _exit(7);
    }
    printf("raw fork child: %d\n", wait_for(child));
    struct sigaction now;
    sigaction(SIGFPE, 0, &now);
    printf("SIGFPE still default %d\n", now.sa_handler == SIG_DFL);
    burn(0.1);
    return 0;
}

/* A handler of a signal that may come at any time, and that does not come back: it also leaves a walk of the profiler in the
   middle. What faults later, further down the stack, is the program's all the same. */
static volatile sig_atomic_t trapped, handled;
static volatile int going = 1;
static sigjmp_buf out;
static pthread_t victim;

static void leaves(int number) {
    (void)number;
    trapped++;
    siglongjmp(out, 1);
}

static void counts(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    handled += (char *)info->si_addr == nowhere;
    siglongjmp(back, 1);
}

/* Further down than the profiler's handler and its walk would reach. */
NOINLINE static unsigned down(int depth) {
    volatile char room[400];
    room[depth] = 1;
    if (depth == 0) {
        touch();
        return 1;
    }
    return down(depth - 1) + (unsigned)room[depth];
}

static void *sender(void *signals) {
    while (going) {
        struct timespec pause = {.tv_nsec = 20000};
        nanosleep(&pause, 0);
        if (getenv("UU_SESSION"))
            pthread_kill(victim, SIGPROF);
        if (signals)
            pthread_kill(victim, SIGTRAP);
    }
    return signals;
}

static int left(void) {
    /* Blocked but where there is a place to come back to. */
    sigset_t trap;
    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    pthread_sigmask(SIG_BLOCK, &trap, 0);
    struct sigaction action = {.sa_handler = leaves};
    sigaction(SIGTRAP, &action, 0);
    set(0, counts, 0);
    victim = pthread_self();
    pthread_t senders[2];
    pthread_create(&senders[0], 0, sender, 0);
    pthread_create(&senders[1], 0, sender, senders);
    int raised = 0;
    for (double end = cpu() + 1.5; cpu() < end;) {
        if (sigsetjmp(out, 1) == 0) {
            pthread_sigmask(SIG_UNBLOCK, &trap, 0);
            burn(0.0002);
            pthread_sigmask(SIG_BLOCK, &trap, 0);
        }
        raised++;
        if (sigsetjmp(back, 1) == 0)
            down(40);
    }
    going = 0;
    pthread_join(senders[0], 0);
    pthread_join(senders[1], 0);
    printf("all handled %d, trapped %d\n", raised == handled, trapped > 100);
    return 0;
}

/* Strict seccomp kills at every system call but read, write, exit and sigreturn. */
static int strict(void) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0))
        return 1;
    burn_quietly();
    static const char text[] = "still here\n";
    if (write(1, text, sizeof text - 1) < 0)
        return 1;
    syscall(SYS_exit, 0);
    return 1;
}

/* How far down an alternate stack a fault reaches, whose handler needs next to nothing. Not compared: it is measured. */
static void quietly(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)after_touch;
}

static int depth(void) {
    static unsigned char stack[1 << 16];
    memset(stack, 0xa5, sizeof stack);
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, 0);
    set(SA_ONSTACK, quietly, 0);
    touch_and_go();
    size_t untouched = 0;
    while (untouched < sizeof stack && stack[untouched] == 0xa5)
        untouched++;
    printf("depth %zu\n", sizeof stack - untouched);
    burn(0.05);
    return 0;
}

int main(int argc, char **argv) {
    static const struct { const char *name; int (*run)(void); } all[] = {
        {"before", before}, {"after", after}, {"inside", inside}, {"inside-alternate", inside_alternate},
        {"blocked", blocked}, {"small", small}, {"overflow", overflow}, {"children", children}, {"left", left},
        {"strict", strict}, {"depth", depth},
    };
    setvbuf(stdout, 0, _IONBF, 0);
    void *frames[2];
    backtrace(frames, 2); /* loads what it needs now */
    for (unsigned i = 0; argc > 1 && i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0)
            return all[i].run();
    return 2;
}
