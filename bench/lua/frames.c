/* What the measurement of frames.lua does in C: it takes samples and times them, and walks frame pointers, the floor.

     take()          ticks of the time stamp counter that one sample of this thread takes, the signal included
     floor(depth)    ticks that a walk by frame pointers takes over `depth` frames of C functions, in a chain
     native(depth)   as take(), with `depth` frames of C functions on top of the stack */
#include <lauxlib.h>
#include <lua.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

static uint64_t ticks(void) {
    _mm_lfence();
    uint64_t now = __rdtsc();
    _mm_lfence();
    return now;
}

static uint64_t sample(void) {
    uint64_t begin = ticks();
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
    return ticks() - begin;
}

static volatile uint64_t sink;

static uint64_t walks(long depth) {
    enum { WALKS = 200 };
    uint64_t sum = 0, begin = ticks();
    for (int walk = 0; walk < WALKS; walk++) {
        const uint64_t *frame = __builtin_frame_address(0);
        for (long i = 0; i < depth; i++) {
            sum += frame[1];
            frame = (const uint64_t *)frame[0];
        }
        /* Each walk begins when the one before has ended. */
        __asm__ volatile("" : "+r"(sum) : : "memory");
        _mm_lfence();
    }
    uint64_t all = ticks() - begin;
    sink += sum;
    return all / WALKS;
}

/* A chain of two functions, so that it is none that the compiler makes a loop of. */
static uint64_t other(long left, long depth, uint64_t (*leaf)(long));

__attribute__((noinline, noclone)) static uint64_t chain(long left, long depth, uint64_t (*leaf)(long)) {
    uint64_t result = left == 0 ? leaf(depth) : other(left - 1, depth, leaf);
    __asm__ volatile("" : "+r"(result) : : "memory");
    return result;
}

__attribute__((noinline, noclone)) static uint64_t other(long left, long depth, uint64_t (*leaf)(long)) {
    uint64_t result = left == 0 ? leaf(depth) : chain(left - 1, depth, leaf);
    __asm__ volatile("" : "+r"(result) : : "memory");
    return result;
}

static uint64_t sample_at(long depth) {
    (void)depth;
    return sample();
}

static int take(lua_State *L) {
    lua_pushnumber(L, (lua_Number)sample());
    return 1;
}

static int walk_floor(lua_State *L) {
    long depth = (long)luaL_checknumber(L, 1);
    lua_pushnumber(L, (lua_Number)chain(depth, depth, walks));
    return 1;
}

static int native(lua_State *L) {
    long depth = (long)luaL_checknumber(L, 1);
    lua_pushnumber(L, (lua_Number)chain(depth, depth, sample_at));
    return 1;
}

static int nap(lua_State *L) {
    usleep((useconds_t)(luaL_checknumber(L, 1) * 1e6));
    return 0;
}

static const struct { const char *name; lua_CFunction function; } FUNCTIONS[] = {
    {"take", take}, {"floor", walk_floor}, {"native", native}, {"nap", nap}};

int luaopen_frames(lua_State *L) {
    lua_createtable(L, 0, 4);
    for (int i = 0; i < 4; i++) {
        lua_pushcfunction(L, FUNCTIONS[i].function);
        lua_setfield(L, -2, FUNCTIONS[i].name);
    }
    return 1;
}
