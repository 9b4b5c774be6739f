/* A program that contains the strings by which a fork of Lua is recognised. It works for a second: with LUA, in Lua. */
#include <stdio.h>
#include <time.h>

#ifdef RAVI
/* Ravi's _VERSION, and what its precompiled code begins with. */
__attribute__((used)) static const char marker[] = "Ravi 5.4";
__attribute__((used)) static const char signature[] = "\x1bRavi";
#endif
#ifdef LUA
#include <lauxlib.h>
#include <lualib.h>
#else
/* Luau's _VERSION, a message of its loader, and the identification of the Lua that it derives from. */
__attribute__((used)) static const char marker[] = "Luau";
__attribute__((used)) static const char loader[] = "%s: bytecode version mismatch (expected [%d..%d], got %d)";
__attribute__((used)) static const char origin[] = "$Lua: Lua 5.1.4 Copyright (C) 1994-2008 Lua.org, PUC-Rio $";
#endif

static volatile unsigned long sink;

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

__attribute__((noinline)) static void work(void) {
#ifdef LUA
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    if (luaL_dostring(L, "local function f(n) local s = 0 for i = 1, n do s = s + i % 7 end return s end for i = 1, 20 do f(10000) end"))
        fputs(lua_tostring(L, -1), stderr);
    lua_close(L);
#else
    for (unsigned long i = 0; i < 1000000; i++)
        sink += i % 7;
#endif
}

int main(void) {
    while (cpu_seconds() < 1)
        work();
    return 0;
}
