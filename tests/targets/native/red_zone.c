/* Functions that leave their caller's frame pointer below the stack pointer, and spend their time there: one as
   compilers' epilogues do, which describe a popped register by its old place; one that saves it in the red zone. Their
   callers are found by that frame pointer alone. Half of the time, a handler on an alternate stack has interrupted
   them. `red_zone ROUNDS` */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

void popped(long rounds), saved(long rounds);

__asm__(".text\n"
        ".type popped, @function\n"
        "popped: .cfi_startproc\n"
        "  push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset rbp, -16\n"
        "  push %rbx\n .cfi_def_cfa_offset 24\n .cfi_offset rbx, -24\n"
        "  sub $40, %rsp\n .cfi_def_cfa_offset 64\n"
        "  add $40, %rsp\n .cfi_def_cfa_offset 24\n"
        "  pop %rbx\n .cfi_def_cfa_offset 16\n"
        "  pop %rbp\n .cfi_def_cfa_offset 8\n"
        "1: dec %rdi\n"
        "  jnz 1b\n"
        "  ret\n"
        ".cfi_endproc\n .size popped, . - popped\n"
        ".type saved, @function\n"
        "saved: .cfi_startproc\n"
        "  mov %rbp, -120(%rsp)\n .cfi_offset rbp, -128\n"
        "  xor %ebp, %ebp\n"
        "1: dec %rdi\n"
        "  jnz 1b\n"
        "  mov -120(%rsp), %rbp\n .cfi_restore rbp\n"
        "  ret\n"
        ".cfi_endproc\n .size saved, . - saved\n");

static volatile long sink;

static long cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* It begins at a tick of the kernel's, as samples do: so it lasts longer than one, however fast the processor is. */
static void on_signal(int number) {
    for (long end = cpu_ns() + 10000000; cpu_ns() < end;)
        for (int i = 0; i < 100000; i++)
            sink += number;
}

__attribute__((noinline)) static void calls_popped(void) {
    popped(40000000);
    sink++;
}

__attribute__((noinline)) static void calls_saved(void) {
    saved(40000000);
    sink++;
}

int main(int count, char **words) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGVTALRM, &action, 0);
    struct itimerval every = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_VIRTUAL, &every, 0);
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) {
        calls_popped();
        calls_saved();
    }
    return 0;
}
