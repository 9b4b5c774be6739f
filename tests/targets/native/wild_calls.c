/* Addresses that are no code: called, returned to, and met in the few instructions that mend a read of the library's own. The path is
   main, outer, then the function under test, all in one section; what a capture must show of it is written down beside it.

   Prints a line for each case that is right; anything else is said on stderr, and the exit code is 1. */
#define _GNU_SOURCE
#include "uu.h"

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define PATH __attribute__((noinline, noclone, section("path_text")))
#define MOST 128
#define TRAP_FLAG 0x100
#define STAY __asm__ volatile("" ::: "memory")

extern char __start_path_text[], __stop_path_text[];
static uint64_t frames[MOST];
static size_t count;
static uint16_t stop;
static sigjmp_buf back;
static int failed;
static long steps, lost;

static int on_path(uint64_t frame) {
    uint64_t address = UU_FRAME_ADDRESS(frame);
    return address >= (uint64_t)__start_path_text && address < (uint64_t)__stop_path_text;
}

static void expect(const char *what, int right) {
    if (right) {
        printf("%s\n", what);
        fflush(stdout);
        return;
    }
    failed = 1;
    fprintf(stderr, "%s: stop %u, %zu frames:", what, stop, count);
    for (size_t i = 0; i < count && i < 16; i++)
        fprintf(stderr, " %lx", (unsigned long)frames[i]);
    fprintf(stderr, "\n");
}

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    count = uu_capture(frames, MOST, context, &stop);
    siglongjmp(back, 1);
}

/* What is called: by a register, from memory, and by a jump from a function that has left its frame. */
static void (*volatile target)(void);
PATH static void by_register(void) {
    void (*function)(void) = target;
    __asm__ volatile("call *%0" ::"r"(function) : "memory");
}
PATH static void from_memory(void) {
    __asm__ volatile("call *%0" ::"m"(target) : "memory");
}
PATH static void by_jump(void) {
    void (*function)(void) = target;
    __asm__ volatile("call 1f\n jmp 2f\n1: jmp *%0\n2:" ::"r"(function) : "memory");
}

PATH static void outer(void (*function)(void)) {
    function();
    STAY;
}

/* The callee's address as it was called; its caller, marked; and the rest of the path, not marked. */
static void calls(const char *name, void *to, void (*function)(void)) {
    char what[64];
    target = (void (*)(void))to;
    snprintf(what, sizeof what, "%s of %s", function == by_register ? "register call" : function == from_memory ? "memory call" : "jump", name);
    if (!sigsetjmp(back, 1)) {
        outer(function);
        expect(what, 0);
        return;
    }
    expect(what, stop == UU_STOP_COMPLETE && count > 4 && UU_FRAME_ADDRESS(frames[0]) == (uint64_t)to &&
                     (frames[0] & UU_FRAME_EXACT) && on_path(frames[1]) && (frames[1] & UU_FRAME_BY_FRAME_POINTER) &&
                     on_path(frames[2]) && !(frames[2] & UU_FRAME_BY_FRAME_POINTER));
}

/* Captures while the return address is another one. */
PATH static __attribute__((optimize("no-omit-frame-pointer"))) void returns(const char *name, uint64_t to, int is_frame) {
    volatile uint64_t *slot = (uint64_t *)__builtin_frame_address(0) + 1;
    const uint64_t was = *slot;
    *slot = to;
    count = uu_capture(frames, MOST, NULL, &stop);
    *slot = was;
    if (is_frame)
        expect(name, count > 1 && UU_FRAME_ADDRESS(frames[1]) == to);
    else
        expect(name, stop == UU_STOP_NOT_CODE && count == 1 && on_path(frames[0]));
}

static void on_trap(int number, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint64_t nested[MOST];
    uint16_t why = 0;
    int path = 0;
    (void)number;
    if (info->si_code == SI_KERNEL) { /* int3: begin or end */
        regs[REG_EFL] ^= TRAP_FLAG;
        return;
    }
    const size_t n = uu_capture(nested, MOST, context, &why);
    for (size_t i = 0; i < n; i++)
        path += on_path(nested[i]);
    steps++;
    lost += why != UU_STOP_COMPLETE || path != 2;
}

/* A capture whose reads of the stack fail, interrupted at each instruction. */
static ucontext_t made;
PATH static void interrupted(void) {
    __asm__ volatile("int3" ::: "memory");
    count = uu_capture(frames, MOST, &made, &stop);
    __asm__ volatile("int3" ::: "memory");
}

int main(void) {
    static uint64_t data[8];
    char *pages = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *heap = malloc(4096), local = 0;
    static const unsigned char call[] = {0x90, 0xe8, 0, 0, 0, 0, 0xc3};
    memcpy(pages, call, sizeof call);
    if (mprotect(pages, 4096, PROT_READ | PROT_EXEC) || mprotect(pages + 2 * 4096, 4096, PROT_NONE))
        return 2;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    /* The library passes on faults that are not its own. */
    if (sigaction(SIGSEGV, &action, 0) || uu_handle_faults())
        return 2;
    void (*functions[])(void) = {by_register, from_memory, by_jump};
    for (int i = 0; i < 3; i++) {
        calls("null", 0, functions[i]);
        calls("an unmapped address", pages + 2 * 4096, functions[i]);
        calls("data", data, functions[i]);
        if (functions[i] != by_jump) /* a jump leaves no proof of who called memory that can be read */
            calls("memory", pages + 4096, functions[i]);
    }
    returns("return to data", (uint64_t)data, 0);
    returns("return to the heap", (uint64_t)(heap + 8), 0);
    returns("return to the stack", (uint64_t)&local, 0);
    returns("return to an unmapped address", (uint64_t)pages + 2 * 4096 + 64, 0);
    returns("return to after no call", (uint64_t)pages + 1, 0);
    returns("return to after a call", (uint64_t)pages + 6, 1);
    getcontext(&made);
    made.uc_mcontext.gregs[REG_RIP] = (greg_t)&interrupted;
    made.uc_mcontext.gregs[REG_RSP] = (greg_t)(pages + 2 * 4096 + 64);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, 0);
    interrupted();
    lost = steps = 0;
    outer(interrupted);
    expect("an unreadable stack", stop == UU_STOP_UNREADABLE_STACK && count == 1);
    if (lost || steps < 100)
        fprintf(stderr, "of %ld captures in a capture %ld were lost\n", steps, lost);
    expect("captures in a capture", !lost && steps >= 100);
    return failed;
}
