/* What `lua` of Lua is, for versions that are not installed: runs a script with arguments; its own API is exported. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

int main(int argc, char **argv) {
    lua_State *L = luaL_newstate();
    if (argc < 2 || L == NULL)
        return 2;
    luaL_openlibs(L);
    lua_createtable(L, 0, 0);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - 1);
    }
    lua_setglobal(L, "arg");
    if (luaL_loadfile(L, argv[1]) || lua_pcall(L, 0, 0, 0)) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        return 1;
    }
    lua_close(L);
    return 0;
}
