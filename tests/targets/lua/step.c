/* step(on): what follows is sampled after every instruction, until step(false).

   The trap flag makes the processor stop after each instruction. The handler of that trap sends the sampling signal,
   which is blocked while the handler runs: it is delivered when the handler returns, at the instruction that was
   stopped at. In libraries other than Lua's, only the first instruction after each entry is sampled, and the end of
   longjmp.

   With $UU_TEST_TRACE, step(on) writes there instead what a hook sees at each call and return: the first lines of the
   Lua functions that run, innermost first, of the running coroutine and of those that resumed it. The same script run
   twice, once each way, must have the same stacks. Prints the number of samples that were sent. */
#define _GNU_SOURCE
#include "../native/ring.h"

#include <lauxlib.h>
#include <link.h>
#include <lua.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP_FLAG 0x100
/* More instructions than a script may take. */
#define MOST 4000000

void cap(void);

/* Code of libc and of libgcc_s, by which LuaJIT unwinds. */
static struct { uintptr_t start, end; } strange[4];
static unsigned strangers;
static long steps, samples;
static int is_strange;


static int find_strangers(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    (void)data;
    if (!strstr(info->dlpi_name, "/libc.so") && !strstr(info->dlpi_name, "/libgcc_s.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && strangers < sizeof strange / sizeof strange[0]; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X)) {
            strange[strangers].start = info->dlpi_addr + segment->p_vaddr;
            strange[strangers].end = strange[strangers].start + segment->p_memsz;
            strangers++;
        }
    }
    return 0;
}

/* Outside of Lua only what was entered from it, or is the end of a longjmp: the stack pointer is the target's already.
 * */
static int worth_a_look(const greg_t *regs) {
    static uintptr_t last_sp;
    uintptr_t pc = (uintptr_t)regs[REG_RIP], sp = (uintptr_t)regs[REG_RSP];
    int was = is_strange, jumped = sp > last_sp + 256;
    is_strange = 0;
    for (unsigned i = 0; i < strangers; i++)
        is_strange |= pc >= strange[i].start && pc < strange[i].end;
    last_sp = sp;
    return !is_strange || !was || jumped;
}

/* Returns when all samples were read: the next one has the whole ring. Uses no CPU time meanwhile, so there is no tick.
 * */
void wait_until_read(void) {
    struct timespec pause = {.tv_nsec = 500000};
    if (!ring_written)
        find_ring();
    for (int i = 0; ring_written && *ring_written != *ring_consumed && i < 20000; i++)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, 0);
}

static void on_trap(int number, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number;
    if (info->si_code == SI_KERNEL) { /* int3: begin or end */
        regs[REG_EFL] ^= TRAP_FLAG;
        return;
    }
    if (++steps > MOST) {
        fprintf(stderr, "step: more than %d instructions\n", MOST);
        _exit(3);
    }
    if (!worth_a_look(regs))
        return;
    wait_for_room();
    samples++;
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
}

/* ---- The runtime's own view -------------------------------------------------------------------------------------- */

#define STATES 64
static lua_State *states[STATES];
static int state_count;
static FILE *trace;

/* The innermost state's chain from level `skip` on, but for level `without`, and those of the others. */
static void put(int skip, int without) {
    for (int i = state_count - 1; i >= 0; i--) {
        lua_Debug ar;
        for (int level = skip; lua_getstack(states[i], level, &ar); level++) {
            lua_getinfo(states[i], "S", &ar);
            if (strcmp(ar.what, "C") != 0 && strcmp(ar.what, "tail") != 0 && level != without)
                fprintf(trace, "%d ", ar.linedefined);
        }
        skip = 0;
        without = -1;
    }
    fprintf(trace, "\n");
}

static void put_chain(int skip) {
    put(skip, -1);
}

/* ---- Hooks of the script's own ----------------------------------------------------------------------------------- */

static const char *const hook_name = "step.hook", *const hooked_name = "step.hooked";

static void run_hook(lua_State *L, lua_Debug *ar) {
    int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, hook_name);
    lua_getfield(L, LUA_REGISTRYINDEX, hooked_name);
    lua_getinfo(L, "f", ar);
    int wanted = lua_rawequal(L, -1, -2) && !lua_isnil(L, -3);
    lua_pop(L, 2);
    if (wanted)
        lua_call(L, 0, 0);
    lua_settop(L, top);
}

static void on_event(lua_State *L, lua_Debug *ar) {
    int known = 0;
    while (known < state_count && states[known] != L)
        known++;
    if (known == STATES)
        abort();
    states[known] = L;
    state_count = known + 1;
    if (LUA_VERSION_NUM == 501 && ar->event == 4) /* a function whose caller is gone has returned */
        return;
    if (ar->event != LUA_HOOKLINE)
        put_chain(0);
    run_hook(L, ar);
    if (ar->event == LUA_HOOKRET)
        put_chain(1);
    /* The caller of a tail call is gone now; up to 5.3 it was still there. */
    if (ar->event == 4)
        put(0, LUA_VERSION_NUM <= 503 ? 1 : -1);
}

/* note(begins): the function that calls it has just begun, or is about to end. */
static int lua_note(lua_State *L) {
    if (!trace)
        return 0;
    int begins = lua_toboolean(L, 1);
    put_chain(begins ? 2 : 1);
    put_chain(begins ? 1 : 2);
    return 0;
}

/* hook(f, g): f is called at each call, return and line of g, until hook(). */
static int lua_hook(lua_State *L) {
    int on = lua_isfunction(L, 1), traced = trace ? LUA_MASKCALL | LUA_MASKRET : 0;
    lua_settop(L, 2);
    lua_setfield(L, LUA_REGISTRYINDEX, hooked_name);
    lua_setfield(L, LUA_REGISTRYINDEX, hook_name);
    lua_sethook(L, trace ? on_event : run_hook, on ? LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE : traced, 0);
    return 0;
}

/* ---- The function ------------------------------------------------------------------------------------------------ */

static int lua_step(lua_State *L) {
    int on = lua_toboolean(L, 1);
    const char *path = getenv("UU_TEST_TRACE");
    if (path && on) {
        static const char *mode = "w";
        trace = fopen(path, mode);
        mode = "a";
        states[0] = L;
        state_count = 1;
        lua_sethook(L, on_event, LUA_MASKCALL | LUA_MASKRET, 0);
        return 0;
    }
    if (path) {
        lua_sethook(L, 0, 0, 0);
        fclose(trace);
        trace = 0;
        return 0;
    }
    if (on) {
        struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
        sigemptyset(&action.sa_mask);
        sigaddset(&action.sa_mask, SIGPROF);
        sigaction(SIGTRAP, &action, 0);
        dl_iterate_phdr(find_strangers, 0);
        find_ring();
        if (!ring_written) {
            fprintf(stderr, "step: this thread is not recorded, or $UU_TEST_RING is not set\n");
            _exit(3);
        }
    }
    __asm__ volatile("int3" ::: "memory");
    if (!on)
        printf("%ld samples in %ld instructions\n", samples, steps);
    return 0;
}

/* sample(): takes a sample of this thread, when its ring has room. */
static int lua_sample(lua_State *L) {
    (void)L;
    if (!ring_written)
        find_ring();
    wait_for_room();
    cap();
    return 0;
}

void open_step(lua_State *L) {
    lua_pushcfunction(L, lua_sample);
    lua_setglobal(L, "sample");
    lua_pushcfunction(L, lua_step);
    lua_setglobal(L, "step");
    lua_pushcfunction(L, lua_note);
    lua_setglobal(L, "note");
    lua_pushcfunction(L, lua_hook);
    lua_setglobal(L, "hook");
}
