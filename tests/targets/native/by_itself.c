/* A program that opens an interpreter after uu_setup_with(UU_SETUP_BY_ITSELF), while a timer's handler walks 10,000 times a
   second: its frames appear without another call. Then what the set-up's thread is: one, with all signals blocked, left out
   of uu_walk_all(), not there in the child of a fork until that asks for it. Argument: liblua5.4.so. */
#define _GNU_SOURCE
#include "uu.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                                   \
    do {                                                                                                              \
        if (!(what))                                                                                                  \
            return printf("line %d: %s\n", __LINE__, #what), 1;                                                      \
    } while (0)

/* The handler's: stacks with the functions of the script, and nothing missing; all stacks. */
static volatile sig_atomic_t whole, walks;

static void on_timer(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    const int error = errno;
    static uint64_t frames[512];
    static struct uu_frame_info about;
    struct uu_request request = {.size = sizeof request, .ucontext = ucontext, .frames = frames, .capacity = 512};
    request.flags = UU_WALK_SEMANTIC;
    if (uu_walk(&request) == 0) {
        int found = 0;
        for (size_t at = 0; at < request.words;) {
            about.size = sizeof about;
            const int words = uu_describe(frames + at, &about);
            if (words <= 0)
                break;
            found |= (strcmp(about.function, "inner") == 0) | (strcmp(about.function, "outer") == 0) << 1;
            at += (size_t)words;
        }
        whole += found == 3 && request.doubt == 0 && request.stop == UU_STOP_COMPLETE;
        walks++;
    }
    errno = error;
}

/* Threads of this process; `*helper` is the set-up's, or 0, and `*blocked` its mask. */
static int threads(int *helper, unsigned long long *blocked) {
    int count = 0;
    *helper = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[300], line[200];
        const int tid = atoi(entry->d_name);
        if (tid <= 0)
            continue;
        count++;
        snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
        FILE *status = fopen(path, "r");
        int ours = 0;
        while (status && fgets(line, sizeof line, status)) {
            ours |= strcmp(line, "Name:\tuu-setup\n") == 0;
            if (ours && sscanf(line, "SigBlk: %llx", blocked) == 1)
                *helper = tid;
        }
        if (status)
            fclose(status);
    }
    if (folder)
        closedir(folder);
    return count;
}

typedef struct lua_State lua_State;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int helper;
    unsigned long long blocked = 0;
    CHECK(uu_setup_with(2) == -EINVAL && uu_setup_with(0) > 0 && uu_setup() > 0);
    CHECK(threads(&helper, &blocked) == 1);
    CHECK(uu_setup_with(UU_SETUP_BY_ITSELF) > 0 && uu_setup_with(UU_SETUP_BY_ITSELF) > 0);
    /* It has its name and its mask once it runs. */
    while (threads(&helper, &blocked) < 2 || !helper)
        usleep(1000);
    CHECK(threads(&helper, &blocked) == 2);
    /* All but SIGKILL, SIGSTOP, and the two that libc keeps for itself. */
    CHECK((blocked | 1ull << 8 | 1ull << 18 | 3ull << 31) == ~0ull);

    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGPROF, &action, NULL) == 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    const struct itimerspec fast = {{0, 100000}, {0, 100000}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &fast, NULL) == 0);

    void *library = dlopen(argv[1], RTLD_NOW);
    CHECK(library);
    lua_State *(*new_state)(void) = (lua_State * (*)(void)) dlsym(library, "luaL_newstate");
    int (*load)(lua_State *, const char *) = (int (*)(lua_State *, const char *))dlsym(library, "luaL_loadstring");
    int (*get)(lua_State *, const char *) = (int (*)(lua_State *, const char *))dlsym(library, "lua_getglobal");
    int (*call)(lua_State *, int, int, int, long, void *) =
        (int (*)(lua_State *, int, int, int, long, void *))dlsym(library, "lua_pcallk");
    CHECK(new_state && load && get && call);
    lua_State *lua = new_state();
    CHECK(load(lua, "function inner() local s = 0 for i = 1, 20000 do s = s + i * i end return s end\n"
                    "function outer() local r = inner() return r end\n"
                    "function called() local r = outer() return r end") == 0); /* C's callee has no name in Lua */
    CHECK(call(lua, 0, 0, 0, 0, NULL) == 0);
    while (whole < 100) {
        get(lua, "called");
        CHECK(call(lua, 0, 0, 0, 0, NULL) == 0);
    }

    static struct uu_thread all[8];
    struct uu_request request = {.size = sizeof request};
    CHECK(uu_walk_all(&request, all, 8, 60ull * 1000 * 1000 * 1000) == 1 && all[0].error == 0);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        CHECK(threads(&helper, &blocked) == 1 && !helper);
        CHECK(uu_setup() > 0 && threads(&helper, &blocked) == 1);
        CHECK(uu_setup_with(UU_SETUP_BY_ITSELF) > 0);
        CHECK(threads(&helper, &blocked) == 2);
        exit(7);
    }
    int status = 0;
    while (waitpid(child, &status, 0) != child)
        ;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    printf("ok\n");
    return 0;
}
