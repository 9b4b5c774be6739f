/* Switches of stacks with the instructions of Boost.Context's jump_fcontext, ontop_fcontext and make_fcontext, without
 * unwind information, under single steps. At each instruction the walk must find the caller of the stack that rsp is
 * on: that of the call before the switch, and the one that the other context has saved after it. Prints how many
 * stacks were whole and how many were not. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <uu.h>

struct transfer {
    void *context;
    void *data;
};
struct transfer jump(void *to, void *data);
struct transfer jump_on_top(void *to, void *data, struct transfer (*function)(struct transfer));
void *make(void *top, size_t size, void (*function)(struct transfer));
extern const char begin[], end[], base[], finish[];

#define SAVE                                                                                                           \
    " lea -0x38(%rsp), %rsp\n stmxcsr (%rsp)\n fnstcw 4(%rsp)\n mov %r12, 8(%rsp)\n mov %r13, 0x10(%rsp)\n"             \
    " mov %r14, 0x18(%rsp)\n mov %r15, 0x20(%rsp)\n mov %rbx, 0x28(%rsp)\n mov %rbp, 0x30(%rsp)\n mov %rsp, %rax\n"     \
    " mov %rdi, %rsp\n"
#define RESTORE                                                                                                        \
    " ldmxcsr (%rsp)\n fldcw 4(%rsp)\n mov 8(%rsp), %r12\n mov 0x10(%rsp), %r13\n mov 0x18(%rsp), %r14\n"               \
    " mov 0x20(%rsp), %r15\n mov 0x28(%rsp), %rbx\n mov 0x30(%rsp), %rbp\n"
__asm__(".text\n.p2align 4\nbegin:\n"
        ".type jump, @function\njump:\n" SAVE " mov 0x38(%rsp), %r8\n" RESTORE
        " lea 0x40(%rsp), %rsp\n mov %rsi, %rdx\n mov %rax, %rdi\n jmp *%r8\n.size jump, .-jump\n"
        ".p2align 4\n.type jump_on_top, @function\njump_on_top:\n mov %rdx, %r8\n" SAVE RESTORE
        " lea 0x38(%rsp), %rsp\n mov %rsi, %rdx\n mov %rax, %rdi\n jmp *%r8\n.size jump_on_top, .-jump_on_top\n"
        ".p2align 4\n.type make, @function\nmake:\n mov %rdi, %rax\n and $-16, %rax\n lea -0x40(%rax), %rax\n"
        " mov %rdx, 0x28(%rax)\n stmxcsr (%rax)\n fnstcw 4(%rax)\n lea base(%rip), %rcx\n mov %rcx, 0x38(%rax)\n"
        " lea finish(%rip), %rcx\n mov %rcx, 0x30(%rax)\n ret\n"
        "base: push %rbp\n jmp *%rbx\nfinish: xor %rdi, %rdi\n call _exit\n hlt\n.size make, .-make\nend:\n");

static uint64_t expected;
static unsigned whole, others;

static void on_step(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    const greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *pc = (const uint8_t *)regs[REG_RIP];
    if ((const char *)pc < begin || (const char *)pc >= end) {
        expected = 0;
        return;
    }
    uint64_t *sp = (uint64_t *)regs[REG_RSP];
    if (expected == 0)
        expected = *sp;
    uint64_t frames[64];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64, .ucontext = context};
    uu_walk(&request);
    int is_base = (const char *)pc >= base;
    int is_whole = request.stop == UU_STOP_SWITCHED_STACK || (!is_base && request.stop == UU_STOP_COMPLETE);
    if (is_whole && (is_base ? request.count == 1 : request.count > 1 && UU_FRAME_ADDRESS(frames[1]) == expected))
        whole++;
    else {
        others++;
        fprintf(stderr, "at +%#tx: stop %u, %u frames, caller %#lx, not %#lx\n", (const char *)pc - begin, request.stop,
                request.count, request.count > 1 ? UU_FRAME_ADDRESS(frames[1]) : 0, expected);
    }
    /* mov %rdi, %rsp: from the next instruction on, the stack is another. */
    if (pc[0] == 0x48 && pc[1] == 0x89 && pc[2] == 0xfc)
        expected = ((uint64_t *)regs[REG_RDI])[7];
}

static struct transfer on_top(struct transfer from) {
    return from;
}

static void inside(struct transfer from) {
    for (;;) {
        from = jump(from.context, from.data);
        from = jump_on_top(from.context, from.data, on_top);
    }
}

int main(void) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    uu_handle_faults();
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    void *context = make(stack + sizeof stack, sizeof stack, inside);
    __asm__ volatile("pushf\n orl $0x100, (%%rsp)\n popf" ::: "memory", "cc");
    struct transfer back = jump(context, NULL);
    for (int i = 0; i < 3; i++)
        back = jump(back.context, NULL);
    back = jump_on_top(back.context, NULL, on_top);
    __asm__ volatile("pushf\n andl $~0x100, (%%rsp)\n popf" ::: "memory", "cc");
    printf("%u %u\n", whole, others);
    return 0;
}
