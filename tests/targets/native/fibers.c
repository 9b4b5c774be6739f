/* As the functions of OCaml 5 do, a loop runs on a stack that has no space for a signal's frame, with an alternate stack for
   handlers. It ends with 0 if nothing was written below that stack, else with 1. By its symbol it is taken for a program of
   OCaml 5, or with -DERLANG of Erlang's runtime. With an argument, it writes "ready", and goes on until a line comes. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>

enum { BELOW = 65536, SIZE = 512 };
static unsigned char memory[BELOW + SIZE] __attribute__((aligned(16)));

#ifdef ERLANG
#include <sys/syscall.h>
#include <unistd.h>
int sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
    return (int)syscall(SYS_rt_sigaction, signal, new, old, 8);
}
#else
void caml_alloc_main_stack(void) {}
#endif

/* The loop: its frame is all that lies on that stack. */
void in_fiber(void *top, unsigned long rounds);
__asm__(".globl in_fiber\n.type in_fiber,@function\nin_fiber:\n"
        "mov %rsp, %rdx\nmov %rdi, %rsp\npush %rdx\n1: dec %rsi\njnz 1b\npop %rsp\nret\n.size in_fiber, .-in_fiber");

int main(int count, char **arguments) {
    (void)arguments;
    size_t size = 65536 + getauxval(AT_MINSIGSTKSZ);
    stack_t alternate = {.ss_sp = malloc(size), .ss_size = size};
    sigaltstack(&alternate, NULL);
    memset(memory, 0x5a, sizeof memory);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    struct timespec begun, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
    if (count > 1) {
        puts("ready");
        fflush(stdout);
    }
    do {
        in_fiber(memory + sizeof memory, 1000000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (count > 1 ? poll(&input, 1, 0) == 0 : now.tv_sec - begun.tv_sec < 2);
    for (size_t i = 0; i < BELOW; i++)
        if (memory[i] != 0x5a)
            return 1;
    return 0;
}
