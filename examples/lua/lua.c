/* lua - a program with Lua in it that registers its states with `uu record`.
 *
 *     cc -O2 -Itarget/uu/include -I/usr/include/lua5.4 -o lua examples/lua/lua.c -llua5.4 -lm -ldl
 *     target/uu/bin/uu record --explicit -- ./lua
 *
 * It is not linked with uu's library. Where no recorder runs, the registration has no effect, and it says so.
 *
 * The chunk sends the program SIGPROF in the middle, for which `uu record --explicit` takes a sample at once. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <uu_lua.h>

static const char chunk[] = "local function leaf() snap() end\n"
                            "local function middle()\n"
                            "  leaf()\n"
                            "end\n"
                            "middle()\n"
                            "local resume = coroutine.wrap(function()\n"
                            "  middle()\n"
                            "end)\n"
                            "resume()\n";

static int snap(lua_State *L) {
    (void)L;
    raise(SIGPROF);
    return 0;
}

int main(void) {
    signal(SIGPROF, SIG_IGN); /* when no recorder runs */
    lua_State *L = luaL_newstate();
    if (!L)
        return 1;
    luaL_openlibs(L);
    lua_pushcfunction(L, snap);
    lua_setglobal(L, "snap");
    printf("registered %d\n", uu_lua_register(L));
    if (luaL_loadbuffer(L, chunk, sizeof chunk - 1, "@example.lua") != 0 || lua_pcall(L, 0, 0, 0) != 0) {
        fprintf(stderr, "lua: %s\n", lua_tostring(L, -1));
        return 1;
    }
    printf("unregistered %d\n", uu_lua_unregister(L));
    lua_close(L);
    return 0;
}
