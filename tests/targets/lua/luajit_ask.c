/* Opens LuaJIT's library `jit`, which asks the processor what it can do, by a helper of the VM's own that pushes a
   register. Takes a sample after each instruction that stands near a `cpuid`, and prints where the function that it is
   in returns to: the trap flag stops the processor after each instruction, so each call is seen. */
#define _GNU_SOURCE
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP_FLAG 0x100
#define MOST 256

static uintptr_t returns[MOST];
static unsigned samples;

/* Is there a cpuid within a few bytes? */
static int near_cpuid(const unsigned char *pc) {
    for (int at = -16; at < 8; at++)
        if (pc[at] == 0x0f && pc[at + 1] == 0xa2)
            return 1;
    return 0;
}

static void on_trap(int number, siginfo_t *info, void *context) {
    static uintptr_t last_pc, last_sp, innermost;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t pc = (uintptr_t)regs[REG_RIP], sp = (uintptr_t)regs[REG_RSP];
    (void)number;
    if (info->si_code == SI_KERNEL) { /* int3: begin or end */
        regs[REG_EFL] ^= TRAP_FLAG;
        return;
    }
    /* A call pushes the address after itself. */
    if (sp == last_sp - 8 && *(uintptr_t *)sp - last_pc - 2 < 6)
        innermost = *(uintptr_t *)sp;
    last_pc = pc;
    last_sp = sp;
    if (!near_cpuid((const unsigned char *)pc) || samples == MOST)
        return;
    returns[samples++] = innermost;
    /* It is blocked while this handler runs, and delivered at the instruction that was stopped at. */
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    lua_State *L = luaL_newstate();
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGPROF);
    sigaction(SIGTRAP, &action, 0);
    lua_pushcfunction(L, luaopen_jit);
    __asm__ volatile("int3" ::: "memory");
    lua_call(L, 0, 0);
    __asm__ volatile("int3" ::: "memory");
    for (unsigned i = 0; i < samples; i++)
        printf("%#lx\n", (unsigned long)returns[i]);
    lua_close(L);
    return 0;
}
