/* Two kernel tasks with one thread pointer, which capture side by side: clone(2) with CLONE_VM, without a TLS of the child's own.

   Usage: shared_pointer CAPTURES. Prints how many captures each made, and how many stacks were wrong. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "shadow.h"

enum { STACK = 1 << 18 };

static volatile int over;
static struct shadow shadows[2];
static long wanted;

static int child(void *argument) {
    while (!over)
        shadow_run(&shadows[1], 1);
    return argument != 0;
}

int main(int count, char **arguments) {
    int status = -1;
    char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wanted = count > 1 ? atol(arguments[1]) : 100000;
    if (stack == MAP_FAILED || uu_handle_faults())
        return 2;
    shadow_run(&shadows[0], 0);
    const int pid = clone(child, stack + STACK - 64, CLONE_VM | SIGCHLD, 0);
    if (pid < 0)
        return 3;
    while (shadows[0].captures < wanted || shadows[1].captures < wanted)
        shadow_run(&shadows[0], 0);
    over = 1;
    waitpid(pid, &status, 0);
    printf("captures %ld %ld wrong %ld %ld child %d\n", shadows[0].captures, shadows[1].captures, shadows[0].wrong, shadows[1].wrong, status);
    return 0;
}
