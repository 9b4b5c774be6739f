/* How much stack a sample takes: fills the unused part of the stack with a pattern, works for a while without calling
   anything, then looks how far down the pattern was disturbed. Done twice: with the sampling signal blocked and an empty
   handler of the program's own instead, which shows what the kernel's frame takes; then with the sampling signal.
   Prints "handler used <bytes>", the difference.
   A program, and a shared object whose paint() Python calls, and whose paint_lua() Lua does, so that the plugin's part is seen too. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PAINTED 65536

/* Where the pattern begins: below this function's frame and what clock_gettime may use. */
#define LEFT_FREE 512

__attribute__((noinline)) static long disturbed(double seconds) {
    volatile uint64_t *top = (volatile uint64_t *)((uintptr_t)__builtin_frame_address(0) - LEFT_FREE);
    volatile uint64_t *bottom = top - PAINTED / 8;
    for (volatile uint64_t *word = bottom; word < top; word++)
        *word = 0x5ca1ab1e5ca1ab1e;
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    double end = (double)t.tv_sec + (double)t.tv_nsec / 1e9 + seconds;
    do {
        for (unsigned i = 0; i < 50000000; i++)
            __asm__ volatile("");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < end);
    volatile uint64_t *word = bottom;
    while (word < top && *word == 0x5ca1ab1e5ca1ab1e)
        word++;
    return (long)((uintptr_t)top + LEFT_FREE - (uintptr_t)word);
}

static volatile int empty_calls;

static void empty(int number) {
    empty_calls += number;
}

static long kernel_frame(void) {
    /* By a raw system call: pthread_sigmask is interposed, and the sampler keeps its signal unblocked there. */
    uint64_t sampling = UINT64_C(1) << (SIGSTKFLT - 1);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &sampling, 0, 8);
    struct sigaction action = {.sa_handler = empty, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval timer = {.it_interval = {.tv_usec = 5000}, .it_value = {.tv_usec = 5000}};
    setitimer(ITIMER_REAL, &timer, 0);
    long used = disturbed(0.2);
    timer.it_interval.tv_usec = timer.it_value.tv_usec = 0;
    setitimer(ITIMER_REAL, &timer, 0);
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &sampling, 0, 8);
    return used;
}

__attribute__((noinline)) long paint(double seconds) {
    long frame = kernel_frame();
    long used = disturbed(seconds) - frame;
    printf("kernel's frame and what is left free %ld%s\nhandler used %ld\n", frame, empty_calls ? "" : " (no signal came)", used);
    fflush(stdout);
    return used;
}

/* A C function of any Lua: no arguments, no results. */
int paint_lua(void *state) {
    (void)state;
    paint(1.0);
    return 0;
}

int main(void) {
    return paint(1.0) == 0;
}
