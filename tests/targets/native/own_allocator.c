/* A program with an allocator of its own, which aborts until main has set it up, as those of images do that were dumped
   from memory. What it does: burn, thread, wait, crash, killed, child,
   killed-child, script (with -DLUA: a Lua script, its argument).
   It ends with 7. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef LUA
#include <lauxlib.h>
#include <lualib.h>
#endif

void abort(void);
void exit(int);
void _exit(int);

enum { HEAP = 64 << 20, HEADER = 16 };
static _Alignas(16) char heap[HEAP];
static size_t used;
static volatile int ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void check(const char *name) {
    if (!ready) {
        write(2, "called before main: ", 20);
        write(2, name, strlen(name));
        write(2, "\n", 1);
        abort();
    }
}

static void *take(size_t align, size_t size) {
    pthread_mutex_lock(&lock);
    size_t start = (used + HEADER + align - 1) & ~(align - 1);
    if (size > HEAP || start > HEAP - size) {
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return NULL;
    }
    used = start + size;
    pthread_mutex_unlock(&lock);
    memcpy(heap + start - sizeof size, &size, sizeof size);
    return heap + start;
}

void *malloc(size_t size) {
    check("malloc");
    return take(16, size);
}

void free(void *memory) {
    check("free");
    (void)memory;
}

void *calloc(size_t count, size_t size) {
    check("calloc");
    /* The heap is zeroed, and nothing is used twice. */
    return take(16, count * size);
}

void *realloc(void *old, size_t size) {
    check("realloc");
    void *memory = take(16, size);
    if (old && memory) {
        size_t before;
        memcpy(&before, (char *)old - sizeof before, sizeof before);
        memcpy(memory, old, before < size ? before : size);
    }
    return memory;
}

void *memalign(size_t align, size_t size) {
    check("memalign");
    return take(align < 16 ? 16 : align, size);
}

void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

int posix_memalign(void **memory, size_t align, size_t size) {
    *memory = memalign(align, size);
    return *memory ? 0 : ENOMEM;
}

static volatile uint64_t sink;
/* Crash reports name what the program exports. */
void own_work(double length), own_wait(void), own_crash(void);

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

__attribute__((noinline)) void own_work(double length) {
    for (double end = seconds(CLOCK_THREAD_CPUTIME_ID) + length; seconds(CLOCK_THREAD_CPUTIME_ID) < end;)
        for (int i = 0; i < 10000; i++)
            sink += (uint64_t)i;
}

__attribute__((noinline)) void own_wait(void) {
    for (double end = seconds(CLOCK_MONOTONIC) + 0.5; seconds(CLOCK_MONOTONIC) < end;)
        usleep(20000);
    sink++;
}

static void *thread(void *unused) {
    own_work(0.3);
    return unused;
}

__attribute__((noinline)) void own_crash(void) {
    *(volatile int *)8 = 0;
    sink++;
}

int main(int count, char **words) {
    ready = 1;
    const char *what = count > 1 ? words[1] : "burn";
    if (!strcmp(what, "burn"))
        own_work(0.3);
    if (!strcmp(what, "thread")) {
        pthread_t other;
        if (pthread_create(&other, NULL, thread, NULL) || pthread_join(other, NULL))
            return 1;
    }
    if (!strcmp(what, "wait"))
        own_wait();
    if (!strcmp(what, "crash"))
        own_crash();
    if (!strcmp(what, "killed"))
        raise(SIGKILL);
    if (!strcmp(what, "child")) {
        pid_t child = fork();
        if (child == 0) {
            own_work(0.3);
            _exit(7);
        }
        int status;
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            return 1;
    }
    if (!strcmp(what, "killed-child")) {
        pid_t child = fork();
        if (child == 0) {
            own_work(0.1);
            raise(SIGKILL);
        }
        own_wait();
        int status;
        if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
            return 1;
    }
#ifdef LUA
    if (!strcmp(what, "script")) {
        lua_State *state = luaL_newstate();
        luaL_openlibs(state);
        if (luaL_dofile(state, words[2]))
            return fprintf(stderr, "%s\n", lua_tostring(state, -1)), 1;
        lua_close(state);
    }
#endif
    return 7;
}
