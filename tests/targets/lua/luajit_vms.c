/* Two VMs on one thread, each of which calls the other. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

void cap(void);

static lua_State *first, *second;

static int plain(lua_State *L) {
    (void)L;
    cap();
    return 0;
}

/* Calls the function that was given to `other`, in the first VM. */
static int back(lua_State *L) {
    (void)L;
    lua_getfield(first, LUA_REGISTRYINDEX, "called back");
    lua_call(first, 0, 0);
    return 0;
}

/* other(code, function): runs code in the second VM. */
static int other(lua_State *L) {
    size_t len;
    const char *code = luaL_checklstring(L, 1, &len);
    lua_pushvalue(L, 2);
    lua_setfield(L, LUA_REGISTRYINDEX, "called back");
    if (luaL_loadbuffer(second, code, len, "=other") || lua_pcall(second, 0, 0, 0))
        return luaL_error(L, "%s", lua_tostring(second, -1));
    return 0;
}

int main(int argc, char **argv) {
    first = luaL_newstate();
    second = luaL_newstate();
    if (argc < 2 || first == NULL || second == NULL)
        return 2;
    luaL_openlibs(first);
    luaL_openlibs(second);
    lua_register(first, "plain", plain);
    lua_register(first, "other", other);
    lua_register(second, "plain", plain);
    lua_register(second, "back", back);
    if (luaL_loadfile(first, argv[1]) || lua_pcall(first, 0, 0, 0)) {
        fprintf(stderr, "%s\n", lua_tostring(first, -1));
        return 1;
    }
    lua_close(second);
    lua_close(first);
    return 0;
}
