/* libuunwind-for-lua.so: what uunwind.lua needs of libuunwind.so.0 in PUC Lua, and the recordings of all Luas.
 *
 * One object for Lua 5.1 to 5.5 and LuaJIT: the few functions of Lua's that it calls are functions in all of them (no
 * macros over others), with arguments that are passed alike. They are declared here, so no version's headers are needed.
 * It links with libuunwind.so.0 in the folder above.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "uu.h"

/* ---- Lua ---------------------------------------------------------------------------------------------------------- */

/* lua_Integer is ptrdiff_t up to 5.2, and long long from 5.3 on; lua_rawseti() takes int up to 5.2. */
typedef long long integer;
typedef struct lua_State lua_State;
typedef int (*function)(lua_State *);

extern int lua_gettop(lua_State *);
extern void lua_createtable(lua_State *, int, int);
extern void lua_pushnil(lua_State *);
extern void lua_pushstring(lua_State *, const char *);
extern void lua_pushlstring(lua_State *, const char *, size_t);
extern void lua_pushinteger(lua_State *, integer);
extern void lua_pushboolean(lua_State *, int);
extern void lua_pushcclosure(lua_State *, function, int);
extern void lua_setfield(lua_State *, int, const char *);
extern void lua_rawseti(lua_State *, int, integer);
extern integer luaL_checkinteger(lua_State *, int);
extern const char *luaL_checklstring(lua_State *, int, size_t *);
extern const char *luaL_optlstring(lua_State *, int, const char *, size_t *);

static int result(lua_State *lua, integer value) {
    lua_pushinteger(lua, value);
    return 1;
}

/* nil, and why. */
static int refused(lua_State *lua, const char *text) {
    lua_pushnil(lua);
    lua_pushstring(lua, text);
    return 2;
}

/* ---- uu.h --------------------------------------------------------------------------------------------------------- */

static int abi(lua_State *lua) { return result(lua, uu_abi()); }
static int setup(lua_State *lua) { return result(lua, uu_setup()); }
static int record_start(lua_State *lua) { return result(lua, uu_record_start()); }
static int record_stop(lua_State *lua) { return result(lua, uu_record_stop()); }
static int own_pid(lua_State *lua) { return result(lua, getpid()); }

static int report_crashes(lua_State *lua) {
    return result(lua, uu_report_crashes((int)luaL_checkinteger(lua, 1), (uint32_t)luaL_checkinteger(lua, 2)));
}

static int report_crashes_to(lua_State *lua) {
    return result(lua, uu_report_crashes_to(luaL_checklstring(lua, 1, NULL), (uint32_t)luaL_checkinteger(lua, 2)));
}

static int label_set(lua_State *lua) {
    return result(lua, uu_label_set(luaL_checklstring(lua, 1, NULL), luaL_optlstring(lua, 2, NULL, NULL)));
}

static int problem(lua_State *lua) {
    lua_pushstring(lua, strerror((int)-luaL_checkinteger(lua, 1)));
    return 1;
}

static void text(lua_State *lua, const char *key, const char *value) {
    if (*value == 0)
        return;
    lua_pushstring(lua, value);
    lua_setfield(lua, -2, key);
}

static void number(lua_State *lua, const char *key, integer value) {
    lua_pushinteger(lua, value);
    lua_setfield(lua, -2, key);
}

static void flag(lua_State *lua, const char *key, int value) {
    lua_pushboolean(lua, value);
    lua_setfield(lua, -2, key);
}

/* Words of a stack: the 4,096 inner and 64 outer frames that are kept, of two words each, and one for the others. */
#define WORDS 8448
#define SYMBOL_INLINED 1u

/* The frames of the caller, leaf first, the stop reason and the doubt; or nil, an error's number, and whose it is. Where
 * Lua has no memory left, its error leaves words and symbols here. */
static int walk(lua_State *lua) {
    uint64_t *words = malloc(WORDS * sizeof *words);
    struct uu_request request = {.size = sizeof request, .frames = words, .capacity = WORDS};
    const struct uu_symbol *symbols = NULL;
    const char *what = "walked";
    int done = words ? uu_walk(&request) : -ENOMEM;
    if (done >= 0) {
        what = "named";
        done = uu_symbolize(words, request.words, &symbols);
    }
    if (done < 0) {
        free(words);
        lua_pushnil(lua);
        lua_pushinteger(lua, done);
        lua_pushstring(lua, what);
        return 3;
    }
    lua_createtable(lua, done, 0);
    integer index = 0;
    for (const struct uu_symbol *symbol = symbols; symbol; symbol = symbol->next) {
        const uint64_t word = words[symbol->frame];
        lua_createtable(lua, 0, 10);
        lua_pushstring(lua, symbol->function);
        lua_setfield(lua, -2, "name");
        text(lua, "file", symbol->file);
        text(lua, "module", symbol->object);
        if (symbol->line)
            number(lua, "line", symbol->line);
        number(lua, "address", (integer)symbol->address);
        flag(lua, "inlined", (symbol->flags & SYMBOL_INLINED) != 0);
        flag(lua, "interpreter", (word & UU_FRAME_INTERPRETER) != 0);
        flag(lua, "semantic", symbol->kind == UU_FRAME_SEMANTIC);
        lua_pushstring(lua, symbol->kind == UU_FRAME_SEMANTIC ? symbol->language
                            : symbol->kind == UU_FRAME_WINDOW ? "jit"
                                                              : "native");
        lua_setfield(lua, -2, "language");
        if (symbol->kind == UU_FRAME_OMITTED)
            number(lua, "omitted", (uint32_t)word);
        lua_rawseti(lua, -2, ++index);
    }
    uu_symbols_free(symbols);
    free(words);
    lua_pushinteger(lua, request.stop);
    lua_pushinteger(lua, request.doubt);
    return 3;
}

/* ---- Recordings: `uu record -p` beside the process ------------------------------------------------------------------ */

/* How long uu may take to begin, and its timer after that, in seconds: only a machine without any time for them does. */
#define PATIENCE 600
#define ARMED 5

static void wait_ms(long ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static time_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

/* Whether a line of a file has this text. -1: the file cannot be read. */
static int has(const char *path, const char *wanted) {
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    int found = 0;
    if (file == NULL)
        return -1;
    while (!found && getline(&line, &size, file) >= 0)
        found = strstr(line, wanted) != NULL;
    free(line);
    fclose(file);
    return found;
}

/* Asks the recorder to go on, by the page that it has for that (profiler/recorder/src/switch.rs). 1: it does. */
static int ask(int fd) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (lseek(fd, 0, SEEK_END) < (off_t)page)
        return 0; /* It has just been made. */
    char *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return 0;
    uint32_t *word = (uint32_t *)(void *)(memory + 24);
    const uint32_t asked = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    const uint32_t done = __atomic_load_n(word + 1, __ATOMIC_ACQUIRE);
    int goes_on = 0;
    if (memcmp(memory, "uu-swtc1", 8) == 0) {
        if (asked == 0)
            __atomic_store_n(word, 2, __ATOMIC_RELEASE); /* To go on is an even number. */
        goes_on = asked != 0 && asked == done;
    }
    munmap(memory, page);
    return goes_on;
}

static int resumed(pid_t uu) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)uu);
    DIR *folder = opendir(path);
    int goes_on = 0;
    if (folder == NULL)
        return 0;
    for (struct dirent *entry; !goes_on && (entry = readdir(folder)) != NULL;) {
        char link[32] = "";
        if (readlinkat(dirfd(folder), entry->d_name, link, sizeof link - 1) < 0 ||
            strncmp(link, "/memfd:uu-switch", 16) != 0)
            continue;
        const int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            goes_on = ask(fd);
            close(fd);
        }
    }
    closedir(folder);
    return goes_on;
}

/* Waits until the sampler in this process has given the calling thread its timer. Where threads are sampled from
 * outside, there is none. */
static void wait_for_timer(void) {
    char mark[32];
    snprintf(mark, sizeof mark, "tid.%d\n", (int)syscall(SYS_gettid));
    for (const time_t end = now() + ARMED; now() < end; wait_ms(2))
        if (has("/proc/self/maps", "/memfd:uu-") != 1 || has("/proc/self/timers", mark) != 0)
            return;
}

/* Starts uu, with what it says going to `said`; a positive errno if it cannot be. */
static int start(pid_t *pid, char *const *words, int said) {
    extern char **environ;
    static const char *const left_out[] = {"LD_PRELOAD=", "LD_AUDIT=", "UU_SESSION="};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t signals;
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **variables = calloc(count + 1, sizeof *variables);
    if (variables == NULL)
        return ENOMEM;
    for (size_t i = 0; i < count; i++) {
        int keep = 1;
        for (size_t j = 0; j < sizeof left_out / sizeof *left_out; j++)
            keep = keep && strncmp(environ[i], left_out[j], strlen(left_out[j])) != 0;
        if (keep)
            variables[kept++] = environ[i];
    }
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, said, 2);
    /* A session of its own: Ctrl-C is for the program, and ends the recording when that ends. */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes, &signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    const int error = posix_spawnp(pid, words[0], &files, &attributes, words, variables);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    free(variables);
    return error;
}

/* Pushes what uu has said, and closes the file. */
static void push_said(lua_State *lua, int said) {
    char bytes[16384];
    ssize_t size = pread(said, bytes, sizeof bytes, 0);
    close(said);
    while (size > 0 && bytes[size - 1] == '\n')
        size--;
    lua_pushlstring(lua, bytes, size < 0 ? 0 : (size_t)size);
}

/* Where Yama leaves that to the traced process: processes that this one starts may trace it. */
static void allow_children(void) {
    if (has("/proc/sys/kernel/yama/ptrace_scope", "1") == 1)
        prctl(PR_SET_PTRACER, (unsigned long)getpid(), 0, 0, 0);
}

#define ARGUMENTS 64

/* begin(uu, argument...): the ids of the recorder's process and of this one, and a file; or nil, and why. */
static int begin(lua_State *lua) {
    char *words[ARGUMENTS + 1] = {0};
    char why[128];
    pid_t pid;
    const int count = lua_gettop(lua);
    if (count > ARGUMENTS)
        return refused(lua, "too many options");
    for (int i = 0; i < count; i++)
        words[i] = (char *)luaL_checklstring(lua, i + 1, NULL);
    const int said = memfd_create("uunwind-said", MFD_CLOEXEC);
    if (said < 0)
        return refused(lua, strerror(errno));
    allow_children();
    const int error = start(&pid, words, said);
    if (error) {
        close(said);
        snprintf(why, sizeof why, "%.64s cannot be run: %s", words[0], strerror(error));
        return refused(lua, why);
    }
    /* Paused until then: the recording has nothing of how it was prepared. */
    for (const time_t end = now() + PATIENCE; !resumed(pid); wait_ms(5)) {
        if (waitpid(pid, NULL, WNOHANG) != 0) {
            lua_pushnil(lua);
            push_said(lua, said);
            return 2;
        }
        if (now() > end) {
            kill(pid, SIGTERM);
            waitpid(pid, NULL, 0);
            close(said);
            return refused(lua, "uu has not begun to record");
        }
    }
    wait_for_timer();
    lua_pushinteger(lua, pid);
    lua_pushinteger(lua, getpid());
    lua_pushinteger(lua, said);
    return 3;
}

/* finish(recorder, own, file): its exit code, and what it has said; nothing in the child of a fork. */
static int finish(lua_State *lua) {
    const pid_t pid = (pid_t)luaL_checkinteger(lua, 1);
    const int own = getpid() == (pid_t)luaL_checkinteger(lua, 2), said = (int)luaL_checkinteger(lua, 3);
    int status = 0;
    if (!own)
        return 0;
    kill(pid, SIGTERM);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    lua_pushinteger(lua, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    push_said(lua, said);
    return 2;
}

__attribute__((visibility("default"))) int luaopen_uunwind_core(lua_State *lua) {
    static const struct {
        const char *name;
        function call;
    } functions[] = {
        {"uu_abi", abi},
        {"uu_setup", setup},
        {"uu_report_crashes", report_crashes},
        {"uu_report_crashes_to", report_crashes_to},
        {"uu_label_set", label_set},
        {"uu_record_start", record_start},
        {"uu_record_stop", record_stop},
        {"problem", problem},
        {"pid", own_pid},
        {"walk", walk},
        {"begin", begin},
        {"finish", finish},
    };
    const int count = sizeof functions / sizeof *functions;
    lua_createtable(lua, 0, count);
    for (int i = 0; i < count; i++) {
        lua_pushcclosure(lua, functions[i].call, 0);
        lua_setfield(lua, -2, functions[i].name);
    }
    return 1;
}
