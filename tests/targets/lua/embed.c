/* A program that contains Lua, or is linked with it: runs the script that it is given. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

int luaopen_cap(lua_State *L);

int main(int argc, char **argv) {
    lua_State *L = luaL_newstate();
    if (argc < 2 || L == NULL)
        return 2;
    luaL_openlibs(L);
    lua_pushcfunction(L, luaopen_cap);
    lua_call(L, 0, 0);
    if (luaL_loadfile(L, argv[1]) || lua_pcall(L, 0, 0, 0)) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        return 1;
    }
    lua_close(L);
    return 0;
}
