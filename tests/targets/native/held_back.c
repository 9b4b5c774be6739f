/* Holds all signals back for 1.5 s of CPU time, in five parts, and uses as much with none held back.
   It writes how many milliseconds of CPU time went by while they were, or were called so: more than 1,500 where the
   machine's own host takes the CPU away, which the clock counts.
   Usage: held_back handler|alternate|mask|free */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void burn(double seconds) {
    for (double end = cpu() + seconds; cpu() < end;)
        ;
}

__attribute__((noinline)) static void in_the_open(void) {
    /* By turns at another time after the kernel's last tick, which is when a timer's expiry is noticed. */
    static int turn;
    burn(0.3 + 0.0009 * turn++);
}

static double all_held;

__attribute__((noinline)) static void held(int number) {
    (void)number;
    double begun = cpu();
    burn(0.3);
    all_held += cpu() - begun;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    unsigned long all = ~0ul, before;
    struct sigaction action = {.sa_handler = held};
    sigfillset(&action.sa_mask);
    if (strcmp(mode, "alternate") == 0) {
        stack_t stack = {.ss_sp = malloc(8192), .ss_size = 8192};
        sigaltstack(&stack, 0);
        sigemptyset(&action.sa_mask);
        action.sa_flags = SA_ONSTACK;
    }
    sigaction(SIGUSR1, &action, 0);
    struct sigaction seen;
    sigaction(SIGUSR1, 0, &seen);
    if (seen.sa_handler != held)
        return 3;
    for (int i = 0; i < 5; i++) {
        in_the_open();
        if (strcmp(mode, "mask") == 0) {
            syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, 8);
            held(0);
            register long how __asm__("rdi") = SIG_SETMASK;
            register unsigned long *set __asm__("rsi") = &before;
            register long old __asm__("rdx") = 0, size __asm__("r10") = 8;
            __asm__ volatile("mov $14, %%eax; syscall" : : "r"(how), "r"(set), "r"(old), "r"(size) : "rax", "rcx", "r11", "memory");
        } else if (strcmp(mode, "free") == 0) {
            held(0);
        } else {
            raise(SIGUSR1);
        }
    }
    printf("%.0f\n", all_held * 1000);
    return 0;
}
