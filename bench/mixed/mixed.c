/* Measures, at the innermost function of a stack of Python, Lua and C, a sample of the recorder's and a uu_walk() of the
   same stack, in turn. stack.py calls it. "fresh": each has walked another stack just before, so that nothing of its last
   walk is of use; "same": the same stack again. A sample includes the signal that asks for it and the record of it, so the
   two are compared by how they grow with the stack. */
#define _GNU_SOURCE
#include "uu.h"

#include <dlfcn.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

enum { TIMES = 31, MOST = 4096 };

static int (*walk)(struct uu_request *);
static int expected; /* frames of Python and Lua */

static uint64_t ticks(void) {
    _mm_lfence();
    uint64_t now = __rdtsc();
    _mm_lfence();
    return now;
}

static void sample(void) { syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF); }

static struct uu_request request;

static void whole(void) {
    static uint64_t frames[MOST];
    request = (struct uu_request){.size = sizeof request, .frames = frames, .capacity = MOST};
    if (walk(&request) != 0)
        abort();
}

/* Runs `what` on a stack of its own. */
static void elsewhere(void (*what)(void)) {
    static char stack[1 << 16];
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, what, 0);
    swapcontext(&here, &there);
}

static int ascending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(void (*what)(void), int fresh) {
    uint64_t each[TIMES];
    for (int i = 0; i < TIMES; i++) {
        if (fresh)
            elsewhere(what);
        const uint64_t begin = ticks();
        what();
        each[i] = ticks() - begin;
    }
    qsort(each, TIMES, sizeof each[0], ascending);
    return each[TIMES / 2];
}

/* The walk must have seen what it is measured for. */
static void check(void) {
    int semantic = 0;
    for (size_t i = 0; i < request.words; i++) {
        const unsigned kind = UU_FRAME_KIND(request.frames[i]);
        semantic += kind == UU_FRAME_SEMANTIC;
        i += kind == UU_FRAME_SEMANTIC || kind == UU_FRAME_WINDOW;
    }
    if (request.stop != UU_STOP_COMPLETE || semantic < expected) {
        fprintf(stderr, "%d of %d frames of Python and Lua, stop %d\n", semantic, expected, request.stop);
        exit(1);
    }
}

static int at_leaf(lua_State *L) {
    const int number = (int)lua_tointeger(L, 1);
    for (int fresh = 0; fresh < 2; fresh++) {
        const uint64_t sampled = median(sample, fresh), walked = median(whole, fresh);
        check();
        if (number > 0) {
            printf("%d %s-sample %u %lu\n", number, fresh ? "fresh" : "same", request.count, (unsigned long)sampled);
            printf("%d %s-walk %u %lu\n", number, fresh ? "fresh" : "same", request.count, (unsigned long)walked);
        }
        /* The recorder takes the samples out of their ring. */
        usleep(20000);
    }
    return 0;
}

/* Opens the library, and prepares it as a program without a recorder does. */
int begin(const char *library) {
    void *opened = dlopen(library, RTLD_NOW);
    int (*setup)(void) = opened ? (int (*)(void))dlsym(opened, "uu_setup") : NULL;
    int (*handle_faults)(void) = opened ? (int (*)(void))dlsym(opened, "uu_handle_faults") : NULL;
    walk = opened ? (int (*)(struct uu_request *))dlsym(opened, "uu_walk") : NULL;
    return !walk || !setup || !handle_faults || handle_faults() != 0 || setup() < 0;
}

static const char CHUNK[] = "local leaf, number, depth = ...\n"
                            "local even\n"
                            "local function odd(n) if n == 0 then leaf(number) return 1 end return 1 + even(n - 1) end\n"
                            "even = function(n) if n == 0 then leaf(number) return 1 end return 1 + odd(n - 1) end\n"
                            "return even(depth - 2) + 1\n";

/* `depth` frames of Lua, and as many of Python called this. */
int measure(int depth, int number) {
    expected = 2 * depth;
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    if (luaL_loadbufferx(L, CHUNK, strlen(CHUNK), "=chunk", "t") != LUA_OK)
        return 1;
    lua_pushcfunction(L, at_leaf);
    lua_pushinteger(L, number);
    lua_pushinteger(L, depth);
    const int failed = lua_pcall(L, 3, 0, 0) != LUA_OK;
    if (failed)
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
    lua_close(L);
    fflush(stdout);
    return failed;
}
