/* Threads that run a script again and again, each time in a state of their own, while another thread sends each of them
   the sampling signal at a given rate. Usage: stress SCRIPT SECONDS SIGNALS_PER_SECOND THREADS With one thread, the
   script may fork. With more it may not: a child would find locks of libraries held by threads that it does not have
   (libgcc's, of registered frames, which LuaJIT uses). */
#define _GNU_SOURCE
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 8

static const char *script;
static double end;
static volatile pid_t workers[WORKERS];
static volatile long runs, children;
static int threads;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    fprintf(stderr, "stress: %s\n", what);
    _exit(1);
}

/* fork(): true in the child. The parent waits for its end. */
static int fork_here(lua_State *L) {
    /* Some runs only: a process is dear. */
    pid_t child = __sync_fetch_and_add(&children, 1) % 8 == 0 ? fork() : -1;
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0))
        fail("a child did not end well");
    lua_pushboolean(L, child == 0);
    return 1;
}

static void *work(void *index) {
    workers[(long)index] = (pid_t)syscall(SYS_gettid);
    while (now() < end) {
        lua_State *L = luaL_newstate();
        if (L == NULL)
            fail("no memory");
        luaL_openlibs(L);
        if (threads == 1) {
            lua_pushcfunction(L, fork_here);
            lua_setglobal(L, "fork");
        }
        if (luaL_loadfile(L, script) || lua_pcall(L, 0, 0, 0))
            fail(lua_tostring(L, -1));
        lua_close(L);
        __sync_fetch_and_add(&runs, 1);
    }
    workers[(long)index] = 0;
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t ids[WORKERS];
    if (argc < 5 || (threads = atoi(argv[4])) < 1 || threads > WORKERS)
        return 2;
    script = argv[1];
    end = now() + atof(argv[2]);
    double pause = 1 / atof(argv[3]);
    struct timespec nap = {0, (long)(pause * 1e9)};
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)i))
            fail("no thread");
    while (now() < end) {
        nanosleep(&nap, NULL);
        for (int i = 0; i < threads; i++)
            if (workers[i] != 0)
                syscall(SYS_tgkill, getpid(), workers[i], SIGPROF);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    printf("%ld runs\n", runs);
    return 0;
}
