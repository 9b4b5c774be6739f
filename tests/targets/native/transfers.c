/* Control transfers that abandon frames or switch to another stack, captured at every instruction: longjmp, a Rust panic that is caught,
   clone, makecontext and swapcontext, and a switch of stacks written by hand. Each stack has a path: chain functions that call
   each other in this order, each on its own. So at any moment those on a stack are the first k of its path, for some k that
   grows by one at a time; whatever else a complete capture shows is wrong. It must end where its stack does, too, and no
   capture may have a frame outside of executable memory.

   Usage: transfers [tables]; a line for each scenario. Linked with transfers.rs. */
#define _GNU_SOURCE
#include "uu.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP_FLAG 0x100
#define MOST 256
#define DEPTH 6
#define CHAIN __attribute__((noinline, noclone, section("chain_text"), aligned(64)))
/* Inside a function that is to stay on the stack: its last call is no jump. */
#define STAY __asm__ volatile("" ::: "memory")

extern char __start_chain_text[], __stop_chain_text[];
extern void rust_catches(int), rust_calls(int), rust_throws(int);

static struct stack {
    char *low, *high; /* of memory; null: the main stack */
    uint64_t path[DEPTH];
    uint16_t stop;
    int depth;
} stacks[2];

/* Shared with the child of a clone, which counts at the same time. */
static struct counts { long steps, complete, in_transit, at_base, wrong; } *counts;
static struct { uint64_t start, end; } code[512];
static int codes;

static void read_maps(void) {
    char line[512], rights[8];
    unsigned long start, end;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps) && codes < 512)
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && rights[2] == 'x')
            code[codes].start = start, code[codes++].end = end;
    fclose(maps);
}

static int is_code(uint64_t address) {
    for (int i = 0; i < codes; i++)
        if (address - code[i].start < code[i].end - code[i].start)
            return 1;
    return 0;
}

/* The chain function that an address lies in: each begins at a multiple of 64 and is known by the nearest one before. */
static int place(const struct stack *stack, uint64_t address) {
    uint64_t nearest = 0;
    int at = -1;
    if (address < (uint64_t)__start_chain_text || address >= (uint64_t)__stop_chain_text)
        return -1;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < DEPTH; i++)
            if (stacks[s].path[i] <= address && stacks[s].path[i] > nearest) {
                nearest = stacks[s].path[i];
                at = &stacks[s] == stack ? i : 100;
            }
    return at;
}

static void show(const char *what, const uint64_t *frames, size_t n, uint16_t stop) {
    fprintf(stderr, "%s: stop %u:", what, stop);
    for (size_t i = 0; i < n && i < 24; i++)
        fprintf(stderr, " %lx", (unsigned long)UU_FRAME_ADDRESS(frames[i]));
    fprintf(stderr, "\n");
}

static void check(struct stack *stack, const uint64_t *frames, size_t n, uint16_t stop) {
    int k = 0, wrong = 0;
    for (size_t i = n; i-- > 0;) {
        uint64_t address = UU_FRAME_ADDRESS(frames[i]);
        /* On a stack that was not entered so far, the first function is about to begin: it has no caller. */
        int begins = i + 1 == n && address == stack->path[0];
        int at = place(stack, begins || frames[i] & UU_FRAME_EXACT ? address : address - 1);
        wrong |= !is_code(address);
        if (at >= 0)
            wrong |= at != k++;
    }
    if (stop == UU_STOP_STACK_IN_TRANSIT) {
        __atomic_fetch_add(&counts->in_transit, 1, __ATOMIC_RELAXED);
    } else if (stop == UU_STOP_NULL_RETURN_ADDRESS && n == 1 && stack->stop == UU_STOP_SWITCHED_STACK) {
        /* the first function itself: nothing shows that the null below it is not a mistake */
        __atomic_fetch_add(&counts->at_base, 1, __ATOMIC_RELAXED);
    } else if (stop != stack->stop && !(stop == UU_STOP_START_SYMBOL && k == 1 && stack->low)) {
        wrong = 1;
    } else {
        wrong |= k > stack->depth + 1;
        stack->depth = k;
        __atomic_fetch_add(&counts->complete, 1, __ATOMIC_RELAXED);
    }
    if (wrong && __atomic_fetch_add(&counts->wrong, 1, __ATOMIC_RELAXED) < 8)
        show("wrong", frames, n, stop);
}

static void on_trap(int number, siginfo_t *info, void *context) {
    static uint64_t frames[MOST];
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number;
    if (info->si_code == SI_KERNEL) { /* int3: begin or end */
        regs[REG_EFL] ^= TRAP_FLAG;
        return;
    }
    char *sp = (char *)regs[REG_RSP];
    int on_other = stacks[1].low && sp > stacks[1].low && sp <= stacks[1].high;
    uint16_t stop = 0;
    size_t n = uu_capture(frames, MOST, context, &stop);
    /* glibc describes setcontext as if it were done one instruction before it takes the other stack. */
    struct stack *stack = &stacks[on_other && (stop != UU_STOP_COMPLETE || stacks[1].stop == stop)];
    __atomic_fetch_add(&counts->steps, 1, __ATOMIC_RELAXED);
    check(stack, frames, n, stop);
}

/* longjmp */
static jmp_buf back;
CHAIN static void jump_leaf(int n) { longjmp(back, n); }
CHAIN static void jump_middle(int n) {
    volatile char room[200];
    room[n] = 1;
    jump_leaf(n + room[n]);
    STAY;
}
CHAIN static void jumps(int n) {
    if (!setjmp(back))
        jump_middle(n);
    STAY;
}

/* clone */
static char clone_stack[1 << 16] __attribute__((aligned(64)));
CHAIN static int cloned_leaf(int n) {
    STAY;
    return n & 0;
}
CHAIN static int cloned(void *n) {
    int r = cloned_leaf((int)(intptr_t)n);
    STAY;
    return r;
}
CHAIN static void clones(int n) {
    int status, pid = clone(cloned, clone_stack + sizeof clone_stack, SIGCHLD, (void *)(intptr_t)n);
    waitpid(pid, &status, 0);
    if (status)
        abort();
}

/* makecontext, swapcontext */
static ucontext_t outer, inner;
CHAIN static void context_leaf(void) {
    swapcontext(&inner, &outer);
    STAY;
}
CHAIN static void context_entry(void) {
    context_leaf();
    STAY;
    context_leaf();
    setcontext(&outer);
}
CHAIN static void swaps(int n) {
    for (int i = 0; i < n; i++) {
        swapcontext(&outer, &inner);
        STAY;
    }
}

/* A switch in assembly. It saves the callee-saved registers, and its unwind information is right for both stacks. */
void switch_to(void **from, void *to);
void after_jump(void);
__asm__(".text\n.type switch_to, @function\nswitch_to:\n.cfi_startproc\n"
        "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbp, 0\n"
        "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbx, 0\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbx\n"
        "pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbp\n"
        "ret\n.cfi_endproc\n.size switch_to, . - switch_to\n"
        /* As in libraries of coroutines: the first function's return address is not after a call. */
        "nop\njmp *%rbx\n.globl after_jump\nafter_jump: ud2\n");
static void never(void) { abort(); }
static void *outer_stack, *inner_stack;
CHAIN static void hand_leaf(void) {
    switch_to(&inner_stack, outer_stack);
    STAY;
}
CHAIN static void hand_middle(void) {
    hand_leaf();
    STAY;
}
CHAIN static void hand_entry(void) {
    for (;;)
        hand_middle();
}
CHAIN static void hand_switches(int n) {
    for (int i = 0; i < n; i++) {
        switch_to(&outer_stack, inner_stack);
        STAY;
    }
}

static char other_stack[1 << 16] __attribute__((aligned(64)));

/* Runs it stepwise; `path`: of the main stack and of the other one. */
static void scenario(const char *name, void (*run)(int), int n, char *other, uint16_t stop, void *const path[2][DEPTH]) {
    memset(counts, 0, sizeof *counts);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < DEPTH; i++)
            stacks[s].path[i] = (uint64_t)path[s][i];
        stacks[s].depth = 0;
        stacks[s].stop = s ? stop : UU_STOP_COMPLETE;
    }
    stacks[1].low = other;
    stacks[1].high = other ? other + sizeof other_stack : 0;
    __asm__ volatile("int3" ::: "memory");
    run(n);
    __asm__ volatile("int3" ::: "memory");
    printf("%s: %ld steps, %ld complete, %ld in transit, %ld at a base, %ld wrong\n", name, counts->steps, counts->complete,
           counts->in_transit, counts->at_base, counts->wrong);
    fflush(stdout);
}

static void by_hand(const char *name, void *base, uint16_t stop) {
    void **top = (void **)(other_stack + sizeof other_stack - 64);
    *--top = base;
    *--top = (void *)hand_entry;
    *--top = 0; /* rbp */
    *--top = 0; /* rbx */
    inner_stack = top;
    scenario(name, hand_switches, 3, other_stack, stop,
             (void *const[2][DEPTH]){{(void *)hand_switches}, {(void *)hand_entry, (void *)hand_middle, (void *)hand_leaf}});
}

int main(int argc, char **argv) {
    (void)argv;
    counts = mmap(0, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc > 1 && uu_setup() < 0)
        return 2;
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, 0);
    /* Loads and binds now what must not be stepped through later. */
    jumps(1);
    rust_catches(1);
    clones(1);
    read_maps();
    scenario("longjmp", jumps, 3, 0, 0, (void *const[2][DEPTH]){{(void *)jumps, (void *)jump_middle, (void *)jump_leaf}});
    scenario("panic", rust_catches, 3, 0, 0,
             (void *const[2][DEPTH]){{(void *)rust_catches, (void *)rust_calls, (void *)rust_throws}});
    scenario("clone", clones, 3, clone_stack, UU_STOP_COMPLETE,
             (void *const[2][DEPTH]){{(void *)clones}, {(void *)cloned, (void *)cloned_leaf}});
    getcontext(&inner);
    inner.uc_stack.ss_sp = other_stack;
    inner.uc_stack.ss_size = sizeof other_stack;
    makecontext(&inner, context_entry, 0);
    scenario("swapcontext", swaps, 3, other_stack, UU_STOP_START_SYMBOL,
             (void *const[2][DEPTH]){{(void *)swaps}, {(void *)context_entry, (void *)context_leaf}});
    by_hand("null", 0, UU_STOP_SWITCHED_STACK);
    by_hand("function", (void *)never, UU_STOP_START_SYMBOL);
    by_hand("label", (void *)after_jump, UU_STOP_SWITCHED_STACK);
    return 0;
}
