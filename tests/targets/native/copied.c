/* Stacks for copies: one of more than 1 MiB, one of a handler on an alternate stack, one of a thread, one of a switched
   context. Each takes an explicit sample at its leaf. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define STAY __asm__ volatile("" ::: "memory")

__attribute__((noinline)) static void sample_me(void) {
    long pid = getpid(), tid = syscall(SYS_gettid), result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_tgkill), "D"(pid), "S"(tid), "d"(SIGPROF) : "rcx", "r11", "memory");
    STAY;
}

__attribute__((noinline)) static void deep(int depth) {
    volatile char room[4000];
    room[0] = (char)depth;
    if (depth)
        deep(depth - 1);
    else
        sample_me();
    room[1] = room[0];
}

__attribute__((noinline)) static void on_signal(int number) {
    sample_me();
    (void)number;
    STAY;
}

__attribute__((noinline)) static void interrupted(void) {
    raise(SIGUSR1);
    STAY;
}

__attribute__((noinline)) static void *in_thread(void *argument) {
    sample_me();
    return argument;
}

static ucontext_t home, other;

static void in_context(void) {
    sample_me();
    swapcontext(&other, &home);
}

int main(void) {
    deep(700);
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, 0);
    interrupted();
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    getcontext(&other);
    other.uc_stack.ss_sp = malloc(65536);
    other.uc_stack.ss_size = 65536;
    makecontext(&other, in_context, 0);
    swapcontext(&home, &other);
    return 0;
}
