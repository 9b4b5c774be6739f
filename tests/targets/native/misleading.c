/* Stacks that a frame pointer or a function's first byte explains wrongly. Argument: which. Prints the
 * reason why the walk ended, and the functions' names. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uu.h>

static void show(void *ucontext) {
    static uint64_t frames[64];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64, .ucontext = ucontext};
    const struct uu_symbol *symbols = NULL;
    uu_walk(&request);
    uu_symbolize(frames, request.words, &symbols);
    printf("%u", request.stop);
    for (const struct uu_symbol *symbol = symbols; symbol != NULL; symbol = symbol->next)
        printf(" %s", *symbol->function ? symbol->function : "?");
    puts("");
    fflush(stdout);
    exit(0);
}

__attribute__((noinline, noreturn)) void shows(void) {
    show(NULL);
    abort();
}

static void on_signal(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    show(ucontext);
}

/* Without unwind information: one that calls, without a frame, which its first instruction does not show; four that trap: at their first instruction, after some,
 * the same called through a register, and where the return address of an earlier call is at the stack pointer; and one
 * with a frame that ends in a call which does not return, directly before a function with unwind information. */
void calls(void (*function)(void));
void traps(void);
void traps_later(void);
void traps_through(void);
void traps_deeper(void);
void ends_in_call(void);
__asm__(".text\n"
        ".type calls,@function\ncalls:\n xor %eax, %eax\n sub $24, %rsp\n call *%rdi\n add $24, %rsp\n ret\n.size calls, .-calls\n"
        ".type traps,@function\ntraps:\n ud2\n ret\n.size traps, .-traps\n"
        ".type traps_later,@function\ntraps_later:\n xor %eax, %eax\n nop\n ud2\n ret\n.size traps_later, .-traps_later\n"
        ".type traps_through,@function\ntraps_through:\n test %rax, %rax\n nop\n ud2\n ret\n"
        ".size traps_through, .-traps_through\n"
        ".type returns,@function\nreturns:\n ret\n.size returns, .-returns\n"
        ".type traps_deeper,@function\ntraps_deeper:\n call returns\n sub $8, %rsp\n ud2\n"
        ".size traps_deeper, .-traps_deeper\n"
        ".type ends_in_call,@function\nends_in_call:\n push %rbp\n mov %rsp, %rbp\n call shows\n"
        ".size ends_in_call, .-ends_in_call\n"
        ".type after,@function\nafter:\n.cfi_startproc\n ret\n.cfi_endproc\n.size after, .-after\n");

/* A function of variable size whose CFA counts from rax, across a call of its own inner function, which traps: rax is
 * as it was, or leads to another return address. As OpenSSL's aesni_gcm_encrypt. */
void counts_from_rax(uint64_t rax, int is_changed);
__asm__(".text\n"
        ".type counts_from_rax,@function\ncounts_from_rax:\n.cfi_startproc\n"
        " mov %rsp, %rax\n.cfi_def_cfa %rax, 8\n sub $200, %rsp\n and $-64, %rsp\n call counts_inner\n"
        " mov %rax, %rsp\n.cfi_def_cfa %rsp, 8\n ret\n.cfi_endproc\n.size counts_from_rax, .-counts_from_rax\n"
        ".type counts_inner,@function\ncounts_inner:\n.cfi_startproc\n test %esi, %esi\n cmovne %rdi, %rax\n ud2\n"
        " ret\n.cfi_endproc\n.size counts_inner, .-counts_inner\n");

/* A stack that begins with the first byte of `first`; `before` ends directly before it. */
void begins(void *stack);
void before(void);
void first(void);
__asm__(".text\n.p2align 4\n"
        ".type before,@function\nbefore:\n.cfi_startproc\n ret\n .skip 15, 0x90\n.cfi_endproc\n.size before, .-before\n"
        ".type first,@function\nfirst:\n.cfi_startproc\n ud2\n.cfi_endproc\n.size first, .-first\n"
        ".type begins,@function\nbegins:\n mov %rdi, %rsp\n ret\n.size begins, .-begins\n");

/* Writes a function's address over its return address. */
__attribute__((noinline, noreturn)) void overruns(void) {
    void (*volatile room[2])(void);
    for (int i = 0; i < 64; i++)
        ((void (*volatile *)(void))__builtin_frame_address(0))[1 + i] = first;
    __asm__ volatile("" : : "r"(room) : "memory");
    shows();
}

/* A handler's restorer of the program's own, without unwind information. */
void restorer(void);
__asm__(".text\n.type restorer,@function\nrestorer:\n mov $15, %rax\n syscall\n.size restorer, .-restorer\n");

__attribute__((noinline)) void handles(int signal) {
    (void)signal;
    shows();
}

__attribute__((noinline)) void signals(void) {
    const struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {handles, 0x04000000 /* SA_RESTORER */, restorer, 0};
    syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8);
    syscall(SYS_tkill, syscall(SYS_gettid), SIGUSR1);
    __asm__ volatile("");
}

/* A coroutine as GNU Pth and QEMU make them: a handler on an alternate stack saves its state and returns, and is jumped
 * back into when the thread has no alternate stack any more. `in_handler` also walks in the handler
 * itself, of which nothing must be kept for later. */
static sigjmp_buf in_coroutine, outside;

__attribute__((noinline)) void in_handler(int is_back) {
    const uint16_t expected = is_back ? UU_STOP_SWITCHED_STACK : UU_STOP_COMPLETE;
    for (int i = 0; i < 6; i++) {
        uint64_t frames[64];
        struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64};
        uint16_t stop = 0;
        uu_walk(&request);
        uu_capture(frames, 64, NULL, &stop);
        if (request.stop != expected || stop != expected) {
            printf("%u no %u instead of %u\n", request.stop, stop, expected);
            exit(0);
        }
    }
    if (is_back)
        shows();
}

__attribute__((noinline)) void begins_coroutine(int signal) {
    (void)signal;
    in_handler(sigsetjmp(in_coroutine, 0) != 0);
    __asm__ volatile("");
}

__attribute__((noinline)) void makes_coroutine(void) {
    stack_t stack = {.ss_sp = malloc(1 << 18), .ss_size = 1 << 18};
    struct sigaction action = {.sa_handler = begins_coroutine, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
}

__attribute__((noinline)) void runs_coroutine(void) {
    makes_coroutine();
    if (!sigsetjmp(outside, 0))
        siglongjmp(in_coroutine, 1);
}

/* Clears the return address of its caller, and more. */
__attribute__((noinline, noreturn)) void clears(void) {
    char room[16];
    __asm__ volatile("" : : "r"(room) : "memory");
    memset((char *)__builtin_frame_address(0) + 8, 0, 256);
    shows();
}

static void *in_thread(void *unused) {
    char room[512];
    __asm__ volatile("" : : "r"(room) : "memory");
    clears();
    return unused;
}

__attribute__((noinline)) void counted(int is_changed) {
    counts_from_rax((uint64_t)((char *)__builtin_frame_address(0) + 8), is_changed);
    __asm__ volatile("");
}

__attribute__((noinline)) void inner(const char *what) {
    if (!strcmp(what, "skipped"))
        calls(shows);
    else if (!strcmp(what, "trapped"))
        traps();
    else if (!strcmp(what, "later"))
        traps_later();
    else if (!strcmp(what, "through"))
        __asm__ volatile("call *%%rax" : : "a"(traps_through) : "memory", "cc", "rcx", "rdx", "rsi", "rdi", "r8", "r9");
    else if (!strcmp(what, "deeper"))
        traps_deeper();
    else if (!strcmp(what, "counted") || !strcmp(what, "miscounted"))
        counted(*what == 'm');
    else if (!strcmp(what, "coroutine"))
        runs_coroutine();
    else if (!strcmp(what, "overrun"))
        overruns();
    else if (!strcmp(what, "signalled"))
        signals();
    else if (!strcmp(what, "cleared"))
        clears();
    else if (!strcmp(what, "cleared-in-thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, in_thread, NULL);
        pthread_join(thread, NULL);
    }
    else
        ends_in_call();
    __asm__ volatile("");
}

__attribute__((noinline)) void middle(const char *what) {
    inner(what);
    __asm__ volatile("");
}

/* Its frame pointer is what functions without one leave in the register. */
__attribute__((noinline, optimize("no-omit-frame-pointer"))) void outer(const char *what) {
    char *room = alloca(strlen(what) * 16);
    __asm__ volatile("" : : "r"(room) : "memory");
    middle(what);
    __asm__ volatile("");
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    if (!strcmp(what, "begun")) {
        uint64_t *top = (uint64_t *)((uintptr_t)((char *)malloc(1 << 16) + (1 << 16) - 256) & ~(uintptr_t)15);
        top[0] = (uint64_t)shows;
        top[1] = (uint64_t)first;
        begins(top);
    }
    outer(what);
    return 0;
}
