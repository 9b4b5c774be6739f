/* Compiled with -fsplit-stack: each function that lacks room calls `__morestack` first, which runs it on a new part of
   the stack; these parts lie below each other, or, as the first one does here, above. Where the innermost function runs, uu's stacks are compared
   with libgcc's, on a stack with room for both; and at each instruction on the way they must be whole, and end with the
   callers that a capture before had. Prints the number of stacks, and of parts that lie above the one before. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <uu.h>

#define WHOLE __attribute__((no_split_stack, noinline, noclone))
#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" : : : "memory")
#define MOST 512
#define TRAP_FLAG 0x100
#define HOLE (64 << 20)

void on_other_stack(void *top, void (*function)(void));
__asm__(".text\n.p2align 4\n.type on_other_stack, @function\non_other_stack:\n"
        ".cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset %rbp, -16\n"
        " mov %rsp, %rbp\n .cfi_def_cfa_register %rbp\n mov %rdi, %rsp\n call *%rsi\n"
        " mov %rbp, %rsp\n pop %rbp\n .cfi_def_cfa %rsp, 8\n ret\n .cfi_endproc\n.size on_other_stack, . - on_other_stack\n");

static char first[1 << 16] __attribute__((aligned(64))), room[1 << 17] __attribute__((aligned(64)));
static char alternate[1 << 17] __attribute__((aligned(64)));
static int result;
static uint64_t callers[MOST];
static size_t count_of_callers;
static volatile int stepping;
static unsigned long stacks, above;
static volatile uintptr_t last;
static void *hole;

WHOLE static void end_wrong(const char *why, const uint64_t *frames, size_t count, unsigned stop) {
    printf("%s, stop %u:\n", why, stop);
    for (size_t i = 0; i < count; i++)
        printf("  %#lx\n", (unsigned long)UU_FRAME_ADDRESS(frames[i]));
    fflush(stdout);
    _exit(1);
}

WHOLE static void on_trap(int number, siginfo_t *info, void *context) {
    static uint64_t frames[MOST];
    ucontext_t *at = context;
    uint16_t stop = 0;
    (void)number, (void)info;
    if (!stepping) {
        at->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        return;
    }
    const size_t count = uu_capture(frames, MOST, context, &stop);
    stacks++;
    if (stop != UU_STOP_COMPLETE || count <= count_of_callers)
        end_wrong("not whole", frames, count, stop);
    for (size_t i = 0; i < count_of_callers; i++)
        if (UU_FRAME_ADDRESS(frames[count - 1 - i]) != callers[count_of_callers - 1 - i])
            end_wrong("other callers", frames, count, stop);
}

/* `__morestack` blocks all signals by this function, but not the one of a step. */
WHOLE int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    sigset_t others;
    if (set) {
        others = *set;
        sigdelset(&others, SIGTRAP);
    }
    return (int)syscall(SYS_rt_sigprocmask, how, set ? &others : NULL, old, 8);
}

WHOLE static void compare(void) {
    static void *theirs[MOST];
    static uint64_t ours[MOST];
    uint16_t stop = 0;
    const int expected = backtrace(theirs, MOST);
    for (int again = 0; again < 4; again++) {
        const size_t count = uu_capture(ours, MOST, NULL, &stop);
        if (count != (size_t)expected || stop != UU_STOP_COMPLETE)
            end_wrong("libgcc has another number", ours, count, stop);
        for (int i = 1; i < expected; i++)
            if (UU_FRAME_ADDRESS(ours[i]) != (uintptr_t)theirs[i])
                end_wrong("libgcc has another one", ours, count, stop);
    }
    stacks++;
}

NOINLINE static int deeper(int n) {
    volatile char mine[30000];
    mine[n] = (char)n;
    above += (uintptr_t)mine > last;
    last = (uintptr_t)mine;
    /* Where the hole is, new parts come to lie from now on. */
    if (n == 30)
        munmap(hole, HOLE);
    int r = 0;
    if (n > 0)
        r = deeper(n - 1) + mine[n];
    else {
        const int stepped = stepping;
        stepping = 0;
        on_other_stack(room + sizeof room, compare);
        if (stepped) {
            stepping = 1;
            __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
        }
    }
    KEEP;
    return r;
}

WHOLE static void begin(void) {
    static uint64_t frames[MOST];
    const size_t count = uu_capture(frames, MOST, NULL, NULL);
    count_of_callers = count - 2;
    for (size_t i = 0; i < count_of_callers; i++)
        callers[i] = UU_FRAME_ADDRESS(frames[i + 2]);
    stepping = 1;
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
}

/* On a stack of the program's own data, which lies below all that is mapped. */
WHOLE static void start(void) {
    last = (uintptr_t)first;
    result = deeper(60);
    KEEP;
}

int main(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    hole = mmap(NULL, HOLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (hole == MAP_FAILED || sigaltstack(&stack, NULL) || sigaction(SIGTRAP, &action, NULL))
        return 2;
    begin();
    on_other_stack(first + sizeof first, start);
    stepping = 0;
    printf("%lu stacks, %lu parts above others\n", stacks, above);
    return result != 60 * 61 / 2;
}
