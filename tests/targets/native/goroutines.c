/* As the Go runtime has it: code runs on stacks with no room for a signal frame, and handlers on alternate stacks. A program of
 * Go handles SIGPROF so; a library handles SIGURG only.
 *
 *     goroutines profile|preempt MILLISECONDS
 *
 * Prints whether what lies below such a stack is as it was. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK = 2048, NEIGHBOUR = 32768, ALTERNATE = 32768, PATTERN = 0x5a };

static char memory[NEIGHBOUR + STACK] __attribute__((aligned(64)));
static ucontext_t outside, inside;
volatile unsigned long goroutine_work;

static void handle(int signal) { (void)signal; }

/* A function of its own, which takes nearly no stack. */
__attribute__((noinline)) void goroutine(void) {
    for (unsigned long i = 0; i < 2000000; i++)
        goroutine_work += i;
}

static double cpu_milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    /* By the system call, as the runtime does. */
    stack_t alternate = {.ss_sp = malloc(ALTERNATE), .ss_size = ALTERNATE};
    if (syscall(SYS_sigaltstack, &alternate, NULL) != 0)
        return 3;
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigfillset(&action.sa_mask);
    if (sigaction(strcmp(argv[1], "profile") == 0 ? SIGPROF : SIGURG, &action, NULL) != 0)
        return 4;
    memset(memory, PATTERN, NEIGHBOUR);
    double begun = cpu_milliseconds();
    while (cpu_milliseconds() - begun < atof(argv[2])) {
        getcontext(&inside);
        inside.uc_stack.ss_sp = memory + NEIGHBOUR;
        inside.uc_stack.ss_size = STACK;
        inside.uc_link = &outside;
        makecontext(&inside, goroutine, 0);
        swapcontext(&outside, &inside);
    }
    long changed = 0;
    for (int i = 0; i < NEIGHBOUR; i++)
        changed += memory[i] != PATTERN;
    printf("%ld bytes below the stack were changed\n", changed);
    return 0;
}
