/* Functions that nothing describes, most of them without a frame of their own, so that rbp is the frame pointer of an
 * outer one. `step PLACE CASE` runs a case under single steps, walks at each instruction, and compares with the calls
 * and returns that were executed; prints how many stacks were whole, doubtful, cut, and wrong. `spin PLACE CASE
 * ROUNDS` runs it for a time. PLACE: `text`, where they lie in the program; `jit`, copied to memory of the program's own;
 * `window`, the same, registered as code with frame pointers; `fresh`, copied to new memory every few milliseconds. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <uu.h>

extern const char code[], code_end[];

/* Each begins at a multiple of 16, as compilers and JITs align functions. rdi: rounds of the leaf's loop. */
#define FUNCTION(name, body)                                                                                           \
    ".p2align 4, 0xcc\n.type " #name ", @function\n" #name ":\n" body ".size " #name ", .-" #name "\n"
#define FRAMED(name, body) FUNCTION(name, "push %rbp\n mov %rsp, %rbp\n" body "leave\n ret\n")
#define LOOP "1: lea 1(%rax,%rax,2), %rax\n dec %rdi\n jnz 1b\n"
__asm__(".text\n.p2align 4\ncode:\n"
        FUNCTION(leaf, "xor %eax, %eax\n" LOOP "ret\n")
        FUNCTION(leaf_saves, "push %rbx\n push %rbp\n mov $7, %ebx\n xor %ebp, %ebp\n" LOOP "pop %rbp\n pop %rbx\n ret\n")
        FUNCTION(leaf_stores, "sub $0x18, %rsp\n mov %r14, (%rsp)\n mov %r15, 8(%rsp)\n xor %r15d, %r15d\n" LOOP
                 "mov (%rsp), %r14\n mov 8(%rsp), %r15\n add $0x18, %rsp\n ret\n")
        /* Room that is not written: what earlier calls have left there. */
        FUNCTION(leaf_room, "sub $0x88, %rsp\n xor %r10d, %r10d\n" LOOP "add $0x88, %rsp\n ret\n")
        /* Without a direct call to it, and without a trace of the one through a register. */
        FUNCTION(leaf_reached, "xor %r10d, %r10d\n" LOOP "ret\n")
        FUNCTION(leaf_jumped, LOOP "ret\n")
        FUNCTION(deep, "sub $8, %rsp\n call deeper\n add $8, %rsp\n ret\n")
        FUNCTION(deeper, "sub $0x18, %rsp\n call deepest\n lea deepest(%rip), %r10\n call *%r10\n add $0x18, %rsp\n ret\n")
        FUNCTION(deepest, "push %rdi\n pop %rdi\n ret\n")
        FUNCTION(bare_direct, "sub $0x18, %rsp\n mov %rbx, 8(%rsp)\n mov $5, %ebx\n call leaf_saves\n mov 8(%rsp), %rbx\n"
                 " add $0x18, %rsp\n ret\n")
        FUNCTION(bare_outer, "sub $0x28, %rsp\n call bare_direct\n add $0x28, %rsp\n ret\n")
        FUNCTION(bare_stale, "sub $8, %rsp\n call deep\n call leaf_room\n add $8, %rsp\n ret\n")
        FUNCTION(bare_register, "sub $8, %rsp\n lea leaf_reached(%rip), %r10\n call *%r10\n add $8, %rsp\n ret\n")
        FUNCTION(bare_memory, "push %rbx\n lea leaf_reached(%rip), %r10\n push %r10\n sub $8, %rsp\n mov %rsp, %rbx\n"
                 " call *8(%rbx)\n add $16, %rsp\n pop %rbx\n ret\n")
        FUNCTION(bare_kept, "push %rbx\n lea leaf_saves(%rip), %rbx\n call *%rbx\n pop %rbx\n ret\n")
        FUNCTION(bare_jumps, "jmp leaf_jumped\n")
        FUNCTION(bare_tail, "sub $8, %rsp\n call bare_jumps\n add $8, %rsp\n ret\n")
        FUNCTION(bare_recursive, "push %rbx\n mov %esi, %ebx\n test %esi, %esi\n jz 2f\n dec %esi\n call bare_recursive\n"
                 " jmp 3f\n2: call leaf_stores\n3: pop %rbx\n ret\n")
        FRAMED(framed_stale, "sub $0x80, %rsp\n" LOOP)
        FRAMED(run_leaf, "call leaf\n")
        FRAMED(run_saves, "push %rbx\n sub $0x18, %rsp\n call leaf_saves\n mov -8(%rbp), %rbx\n")
        FRAMED(run_stores, "call leaf_stores\n")
        FRAMED(run_bare, "call bare_outer\n")
        FRAMED(run_stale, "call bare_stale\n")
        FRAMED(run_register, "call bare_register\n")
        FRAMED(run_memory, "call bare_memory\n")
        FRAMED(run_kept, "call bare_kept\n")
        FRAMED(run_tail, "call bare_tail\n")
        FRAMED(run_recursive, "mov $5, %esi\n call bare_recursive\n")
        FRAMED(run_framed, "call deep\n call framed_stale\n")
        FRAMED(run_through, "lea leaf_reached(%rip), %r10\n call *%r10\n")
        "code_end:\n");

#define CASE(name) {#name, run_##name}
extern char run_leaf[], run_saves[], run_stores[], run_bare[], run_stale[], run_register[], run_memory[], run_kept[],
    run_tail[], run_recursive[], run_framed[], run_through[];
static const struct {
    const char *name, *code;
} cases[] = {CASE(leaf),     CASE(saves), CASE(stores), CASE(bare),      CASE(stale),  CASE(register),
             CASE(memory),   CASE(kept),  CASE(tail),   CASE(recursive), CASE(framed), CASE(through)};

/* Where the functions are, and the return addresses of the calls that have been executed and not returned. */
static uintptr_t base, size;
static uintptr_t calls[64], before, outside;
static int depth, is_inside;
static unsigned whole, doubtful, cut, wrong, steps;

static int is_ours(uintptr_t address) {
    return address - base < size;
}

/* Whether `frames` is the true stack as far as it goes, with callers left out at most where it is not `whole`. */
static int agrees(const uint64_t *frames, size_t words, uintptr_t pc, int is_whole) {
    int at = depth, first = 1, is_left = 0;
    for (size_t i = 0; i < words; i += UU_FRAME_KIND(frames[i]) == UU_FRAME_WINDOW ? 2 : 1) {
        uintptr_t address = UU_FRAME_ADDRESS(frames[i]);
        if (first) {
            first = 0;
            if (address != pc)
                return 0;
            continue;
        }
        if (is_left)
            continue;
        while (at > 0 && !is_whole && calls[at - 1] != address)
            at--;
        if (at == 0) {
            /* The caller of all: the call from C. It, too, may be left out. */
            if (address != outside && is_whole)
                return 0;
            is_left = 1;
            if (is_ours(address))
                return 0;
            continue;
        }
        if (calls[--at] != address)
            return 0;
    }
    return !is_whole || is_left;
}

static void on_step(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *uc = context;
    uintptr_t pc = uc->uc_mcontext.gregs[REG_RIP], sp = uc->uc_mcontext.gregs[REG_RSP];
    /* What was executed since the last step. */
    const uint8_t *was = (const uint8_t *)before;
    if (is_inside && (was[0] == 0xe8 || (was[0] == 0x41 && was[1] == 0xff) || (was[0] == 0xff && (was[1] >> 3 & 7) == 2)))
        calls[depth++] = *(uintptr_t *)sp;
    if (is_inside && was[0] == 0xc3)
        depth--;
    if (!is_inside && is_ours(pc)) {
        outside = *(uintptr_t *)sp;
        depth = 0;
    }
    is_inside = is_ours(pc);
    before = pc;
    if (!is_inside)
        return;
    steps++;
    static uint64_t frames[256], captured[256];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 256, .ucontext = context};
    uint16_t stop = 0;
    uu_walk(&request);
    size_t words = uu_capture(captured, 256, context, &stop);
    if (words != request.words || stop != request.stop || memcmp(frames, captured, words * sizeof *frames)) {
        fprintf(stderr, "at +%#lx: %zu words, stop %u by uu_walk(); %zu, %u by uu_capture()\n", pc - base, request.words,
                request.stop, words, stop);
        wrong++;
        return;
    }
    int is_complete = stop == UU_STOP_COMPLETE || stop == UU_STOP_START_SYMBOL || stop == UU_STOP_SWITCHED_STACK;
    if (!agrees(frames, words, pc, is_complete)) {
        fprintf(stderr, "at +%#lx, depth %d, stop %u:", pc - base, depth, stop);
        for (size_t i = 0; i < words; i++)
            fprintf(stderr, " %#lx", UU_FRAME_ADDRESS(frames[i]) - base);
        fprintf(stderr, "\n");
        wrong++;
    } else if (is_complete)
        whole++;
    else if (stop == UU_STOP_DOUBTFUL)
        doubtful++;
    else
        cut++;
}

/* With a frame pointer, which is the one that functions without a frame leave alone. */
__attribute__((noinline, optimize("no-omit-frame-pointer"))) static void enter(const char *run, long rounds, int steps_it) {
    void (*function)(long) = (void (*)(long))(base + (run - code));
    if (steps_it)
        __asm__ volatile("pushf\n orl $0x100, (%%rsp)\n popf" ::: "memory", "cc");
    function(rounds);
    __asm__ volatile("" ::: "memory"); /* no jump */
    if (steps_it)
        __asm__ volatile("pushf\n andl $~0x100, (%%rsp)\n popf" ::: "memory", "cc");
}

/* Copies the code to new memory. */
static void copy_code(void) {
    void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base = (uintptr_t)memcpy(copy, code, size);
}

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    size = code_end - code;
    base = (uintptr_t)code;
    if (strcmp(arguments[2], "text"))
        copy_code();
    if (!strcmp(arguments[2], "window")) {
        const struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_FRAME_POINTER, .text = (void *)base,
                                         .text_len = size};
        if (uu_register_window(&window))
            return 3;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, arguments[3]))
            continue;
        if (!strcmp(arguments[1], "spin")) {
            puts("ready");
            fflush(stdout);
            int is_fresh = !strcmp(arguments[2], "fresh");
            for (long n = atol(arguments[4]); n > 0; n--) {
                if (is_fresh && n % 50 == 0)
                    copy_code();
                enter(cases[i].code, 100000, 0);
            }
            return 0;
        }
        uu_handle_faults();
        struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
        sigaction(SIGTRAP, &action, NULL);
        for (int round = 0; round < 3; round++)
            enter(cases[i].code, 3, 1);
        printf("%u steps %u whole %u doubtful %u cut %u wrong\n", steps, whole, doubtful, cut, wrong);
        return 0;
    }
    return 2;
}
