/* Functions that throw, for interpreters: `work` is called by Python's ctypes, and catches what it throws; a module of
   Lua has it, too, and with -DWITH_LUA also `raises`, which throws through the interpreter (LuaJIT catches that), or
   raises an error of Lua's from below C++ frames. */
#include <stdexcept>

#define NOINLINE __attribute__((noinline, noclone))
static volatile long cleaned;

struct Cleanup {
    NOINLINE ~Cleanup() { cleaned = cleaned + 1; }
};

NOINLINE static long throws(long n) { throw std::runtime_error(n > 5 ? "more" : "few"); }
NOINLINE static long cleans(long n) {
    Cleanup cleanup;
    return throws(n) + 1;
}

extern "C" __attribute__((visibility("default"))) long work(long n) {
    long caught = 0;
    for (long i = 0; i < n; i++)
        try {
            cleans(i);
        } catch (const std::runtime_error &error) {
            caught += error.what()[0] == 'm';
        }
    return caught;
}

#ifdef WITH_LUA
extern "C" {
#include <lauxlib.h>
#include <lua.h>
}

static int lua_work(lua_State *L) {
    lua_pushinteger(L, work(luaL_checkinteger(L, 1)));
    return 1;
}

static int lua_raises(lua_State *L) {
    if (lua_toboolean(L, 1))
        cleans(6);
    return luaL_error(L, "an error of Lua's");
}

extern "C" __attribute__((visibility("default"))) int luaopen_throws(lua_State *L) {
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, lua_work);
    lua_setfield(L, -2, "work");
    lua_pushcfunction(L, lua_raises);
    lua_setfield(L, -2, "raises");
    return 1;
}
#endif
