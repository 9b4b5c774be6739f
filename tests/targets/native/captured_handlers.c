/* Captures in a signal handler, through the signal frame, at each instruction of functions with all kinds of frames:
   on the interrupted stack, and on an alternate one. Each is made several times in a row, with room for all frames or
   for some, so that the library may take over what it captured before, and compared with what libgcc's unwinder says.
   Prints the number of captures. */
#define _GNU_SOURCE
#include "uu.h"

#include <alloca.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define MOST 128
#define DEPTH 7
#define TRAP_FLAG 0x100
#define NOINLINE __attribute__((noinline, noclone))

static unsigned long captures, instructions;
static char alternate[1 << 16] __attribute__((aligned(64)));
static volatile int stepping;

/* All begin here, at different instructions: this function's own frame is not compared. */
NOINLINE static void compare(uintptr_t interrupted) {
    uint64_t ours[MOST];
    void *theirs[MOST];
    const size_t expected = (size_t)backtrace(theirs, MOST);
    for (int again = 0; again < 4; again++) {
        uint16_t stop = 0;
        const size_t capacity = again == 3 ? 1 + (instructions + captures) % 20 : MOST;
        const size_t count = uu_capture(ours, capacity, NULL, &stop);
        const size_t most = expected < capacity ? expected : capacity;
        if (count != most || stop != (expected <= capacity ? UU_STOP_COMPLETE : UU_STOP_BUFFER_FULL)) {
            printf("at %#lx: %zu frames of %zu, stop %u; libgcc has %zu\n", interrupted, count, capacity, stop, expected);
            exit(1);
        }
        int is_exact = 0;
        for (size_t i = 1; i < count; i++) {
            /* The interrupted frame is marked, and no other is. */
            const uint64_t flags = !is_exact && ours[i] == (interrupted | (uint64_t)UU_FRAME_NATIVE << 56 | UU_FRAME_EXACT) ? UU_FRAME_EXACT : 0;
            is_exact |= flags != 0;
            if (ours[i] != ((uint64_t)(uintptr_t)theirs[i] | (uint64_t)UU_FRAME_NATIVE << 56 | flags)) {
                printf("at %#lx: frame %zu is %#lx, libgcc has %p\n", interrupted, i, (unsigned long)ours[i], theirs[i]);
                exit(1);
            }
        }
        if (capacity == MOST && !is_exact) {
            printf("at %#lx: no frame is exact\n", interrupted);
            exit(1);
        }
        captures++;
    }
}

NOINLINE static void from_further_in(uintptr_t interrupted) {
    volatile char room[40];
    room[interrupted % sizeof room] = 1;
    compare(interrupted);
    room[0] = 2;
}

static void on_trap(int number, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    (void)number, (void)info;
    if (!stepping) {
        at->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        return;
    }
    const uintptr_t pc = (uintptr_t)at->uc_mcontext.gregs[REG_RIP];
    if (++instructions % 3)
        compare(pc);
    else
        from_further_in(pc);
}

static unsigned go(unsigned depth, unsigned s);

/* A small frame; saved registers; one of variable size, with rbp; a realigned one. */
NOINLINE static unsigned small(unsigned depth, unsigned s) { return go(depth, s * 3) + 1; }
NOINLINE static unsigned saves(unsigned depth, unsigned s) {
    unsigned a = s * 3, b = s ^ 5, c = s + 7, d = s / 3, e = s * s;
    unsigned r = go(depth, s);
    return r ^ a ^ b ^ c ^ d ^ e;
}
NOINLINE static unsigned variable(unsigned depth, unsigned s) {
    volatile char *room = alloca(16 + s % 100);
    room[s % 16] = (char)s;
    return go(depth, s + 1) + (unsigned)room[s % 16];
}
NOINLINE static unsigned realigned(unsigned depth, unsigned s) {
    volatile char room[64] __attribute__((aligned(64)));
    room[s % 64] = (char)s;
    return go(depth, s + 3) + (unsigned)room[s % 64];
}
NOINLINE static unsigned go(unsigned depth, unsigned s) {
    static unsigned (*const all[])(unsigned, unsigned) = {small, saves, variable, realigned};
    return depth ? all[s % 4](depth - 1, s / 4) : s;
}

static void step(unsigned s) {
    stepping = 1;
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
    volatile unsigned result = go(DEPTH, s);
    stepping = 0;
    (void)result;
}

int main(void) {
    if (uu_handle_faults() != 0)
        return 2;
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    for (int on_alternate = 0; on_alternate < 2; on_alternate++) {
        action.sa_flags = SA_SIGINFO | (on_alternate ? SA_ONSTACK : 0);
        if (sigaltstack(&stack, NULL) || sigaction(SIGTRAP, &action, NULL))
            return 3;
        /* Each of them twice: the same stacks come back. */
        for (unsigned s = 0; s < 24; s++)
            step(0x1b1b1b * (1 + s / 2));
    }
    printf("%lu captures at %lu instructions\n", captures, instructions);
    return 0;
}
