/* cap([shape, [coroutine...]]): writes down the runtime's own view of the stack, then takes a sample of the calling
   thread.

   The oracle is one line of JSON a sample, in the file $UU_TEST_ORACLE:
     pid, tid   who takes the sample
     frames     [source, current line, first line, name, kind of name, short source], innermost first: the Lua functions
                of the running coroutine, then of those that were given, innermost first, then of the main one
     shape      what the whole stack should look like (see tests/src/oracle.rs), or ""

   cap_torn(level): the same, but during the sample the link from the CallInfo of the function at that level to its
   caller's is invalid (5.2 and later). */
#include <fcntl.h>
#include <stdarg.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void cap(void);
void open_step(lua_State *L);
void wait_until_read(void);

static char text[1 << 24];
static size_t used;
static int file = -1;
static lua_State *first_state;
/* The link to be made invalid; NULL: none. */
static void *volatile *link_to_tear;

static void put(const char *format, ...) {
    va_list list;
    va_start(list, format);
    used += (size_t)vsnprintf(text + used, sizeof text - used, format, list);
    va_end(list);
    if (used >= sizeof text)
        abort();
}

static void put_string(const char *s) {
    put("\"");
    for (; s != NULL && *s; s++) {
        if (*s == '"' || *s == '\\')
            put("\\%c", *s);
        else if ((unsigned char)*s < 32)
            put("\\u%04x", *s);
        else
            put("%c", *s);
    }
    put("\"");
}

static void put_frames(lua_State *L, int *count) {
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sln", &ar);
        if (strcmp(ar.what, "C") == 0 || strcmp(ar.what, "tail") == 0)
            continue;
        put((*count)++ ? ",[" : "[");
        put_string(ar.source);
        put(",%d,%d,", ar.currentline, ar.linedefined);
        put_string(ar.name);
        put(",");
        put_string(ar.namewhat);
        put(",");
        put_string(ar.short_src);
        put("]");
    }
}

static int lua_cap(lua_State *L) {
    int count = 0, top = lua_gettop(L);
    const char *shape = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    used = 0;
    put("{\"pid\":%ld,\"tid\":%ld,\"frames\":[", (long)getpid(), syscall(SYS_gettid));
    put_frames(L, &count);
    for (int i = 2; i <= top; i++)
        if (lua_type(L, i) == LUA_TTHREAD && lua_tothread(L, i) != L && lua_tothread(L, i) != first_state)
            put_frames(lua_tothread(L, i), &count);
    if (L != first_state)
        put_frames(first_state, &count);
    put("],\"shape\":");
    put_string(shape);
    put("}\n");
    if (file < 0)
        file = open(getenv("UU_TEST_ORACLE"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (write(file, text, used) != (ssize_t)used)
        abort();
    /* A tick while the oracle was written may have left a stack of thousands of frames. */
    wait_until_read();
    if (link_to_tear != NULL) {
        void *was = *link_to_tear, *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *link_to_tear = nowhere;
        cap();
        *link_to_tear = was;
        munmap(nowhere, 4096);
    } else {
        cap();
    }
    return 0;
}

#if LUA_VERSION_NUM >= 502
static int lua_cap_torn(lua_State *L) {
    lua_Debug ar;
    if (!lua_getstack(L, (int)luaL_checkinteger(L, 1), &ar))
        abort();
    /* `previous` follows `func` and `top`. */
    link_to_tear = (void *volatile *)ar.i_ci + 2;
    lua_cap(L);
    link_to_tear = NULL;
    return 0;
}
#endif

int luaopen_cap(lua_State *L) {
    first_state = L;
    lua_pushcfunction(L, lua_cap);
    lua_setglobal(L, "cap");
#if LUA_VERSION_NUM >= 502
    lua_pushcfunction(L, lua_cap_torn);
    lua_setglobal(L, "cap_torn");
#endif
    open_step(L);
    return 0;
}
