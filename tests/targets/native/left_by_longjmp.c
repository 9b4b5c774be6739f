/* A runtime whose handler of SIGFPE leaves by longjmp, on a large alternate stack and with the signal mask as the handler had
 * it (wasmtime does so at each trap), while another thread has a small alternate stack. Prints the CPU time since main began,
 * in ms. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int zero, traps;

static void on_trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    siglongjmp(back, 1); /* sigsetjmp did not save the mask */
}

static void set_stack(size_t size) {
    stack_t stack = {.ss_sp = malloc(size), .ss_size = size};
    if (sigaltstack(&stack, NULL))
        abort();
}

static void *with_a_small_stack(void *argument) {
    /* As small as the kernel takes it: it refuses less than the MINSIGSTKSZ of its headers, 2,048. */
    size_t smallest = (size_t)sysconf(_SC_MINSIGSTKSZ) + 256;
    set_stack(smallest < 2048 ? 2048 : smallest);
    for (;;)
        pause();
    return argument;
}

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(void) {
    const double begun = cpu();
    pthread_t other;
    pthread_create(&other, NULL, with_a_small_stack, NULL);
    usleep(50000);
    set_stack(1 << 18);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigaction(SIGFPE, &action, NULL);
    for (int i = 1; i <= 100; i++) {
        if (sigsetjmp(back, 0) == 0)
            zero = 1 / zero;
        traps++;
        for (double until = begun + 10.0 * i; cpu() < until;)
            ;
    }
    printf("cpu %.0f traps %d\n", cpu() - begun, traps);
    return 0;
}
