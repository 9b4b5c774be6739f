/* Code of JITs comes, runs and goes in several threads, under a storm of signals. A JIT's function at the leaf walks by
   uu_walk(), and so does the handler, wherever it hits. Each stack must be complete, and have exactly the functions that
   run, under the names of the windows that are registered now, although earlier ones lay at the same place. As soon as a
   window is unregistered, its code and its tables are unmapped: a walk that reads them kills the program.

   Usage: walk_windows SECONDS [guarded]
   Prints what was done. */
#define _GNU_SOURCE
#include "handler_mask.h"
#include "emit.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noipa))
enum { THREADS = 3, DEPTH = 6, STRIDE = 32, TEXT = 4096, UNWIND = 4096, MOST = 256 };

struct jit {
    struct uu_function functions[DEPTH];
    char names[DEPTH][32];
    unsigned pads[DEPTH];
    unsigned char *text, *unwind;
};

static atomic_int stop_all;
static atomic_long windows, walks, handled, through, refused;
/* Of the thread's window that runs; 0: none. */
static __thread volatile unsigned serial;

static void die(const char *what, long value) {
    char text[200];
    const int length = snprintf(text, sizeof text, "walk_windows: %s (%ld)\n", what, value);
    if (write(2, text, (size_t)length) < 0)
        _exit(4);
    _exit(3);
}

/* The number of the window in the name of a function of it, and the number of the function. */
static unsigned number_of(const char *name, unsigned *index) {
    unsigned of = 0;
    if (*name++ != 'f')
        die("no name of a JIT's function", 0);
    for (; *name >= '0' && *name <= '9'; name++)
        of = 10 * of + (unsigned)(*name - '0');
    *index = *name == '_' ? (unsigned)(name[1] - '0') : MOST;
    return of;
}

/* The frames in windows of a complete stack: those of this thread's window, from some function out to the first. */
static unsigned check(const uint64_t *frames, size_t words) {
    struct uu_frame_info info = {.size = sizeof info};
    unsigned count = 0, index = 0, last = MOST;
    for (size_t at = 0; at < words;) {
        const int size = uu_describe(frames + at, &info);
        if (size < 1)
            die("uu_describe", size);
        if (info.kind == UU_FRAME_WINDOW) {
            const unsigned of = number_of(info.function, &index);
            if (of != serial)
                die("a function of another window", (long)of - (long)serial);
            if (count++ && index + 1 != last)
                die("a function out of order", (long)index);
            last = index;
        }
        at += (size_t)size;
    }
    if (count && index != 0)
        die("the first function is missing", (long)index);
    return count;
}

NOINLINE static void leaf(void **rest) {
    uint64_t frames[MOST];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = MOST};
    (void)rest;
    const int result = uu_walk(&request);
    if (result || request.stop != UU_STOP_COMPLETE || (request.doubt & ~UU_DOUBT_SETUP_DUE))
        die("a walk of the leaf's", result ? result : request.stop);
    if (check(frames, request.words) != DEPTH)
        die("number of a JIT's functions", check(frames, request.words));
    atomic_fetch_add(&walks, 1);
}

static void on_signal(int signal, siginfo_t *sent, void *ucontext) {
    const int before = errno;
    uint64_t frames[MOST];
    struct uu_request request = {.size = sizeof request, .ucontext = ucontext, .frames = frames, .capacity = MOST};
    (void)signal, (void)sent;
    const int result = uu_walk(&request);
    if (result == 0 && request.stop == UU_STOP_FAULT && request.words == 0)
        atomic_fetch_add(&refused, 1); /* it has interrupted another one */
    else if (result || request.stop != UU_STOP_COMPLETE || (request.doubt & ~UU_DOUBT_SETUP_DUE))
        die("a walk of the handler's", result ? result : request.stop);
    else if (check(frames, request.words))
        atomic_fetch_add(&through, 1);
    atomic_fetch_add(&handled, 1);
    errno = before;
}

/* A pure function of pc, which reads what is unmapped afterwards. */
static uint32_t rule(void *user, uint64_t pc, struct uu_rule *out) {
    const struct jit *jit = user;
    const unsigned offset = (unsigned)(pc - (uintptr_t)jit->text);
    if (offset / STRIDE >= DEPTH || offset % STRIDE >= PLAIN_BYTES)
        return 0;
    give_rule(offset % STRIDE, jit->pads[offset / STRIDE], out);
    return 1;
}

static void *pages(size_t size, int protection) {
    void *at = mmap(0, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        die("mmap", errno);
    return at;
}

static void one(unsigned number) {
    static const uint32_t kinds[] = {UU_WINDOW_EH_FRAME, UU_WINDOW_SFRAME, UU_WINDOW_RULE};
    const uint32_t kind = kinds[number / THREADS % 3];
    struct jit *jit = pages(sizeof *jit, PROT_READ | PROT_WRITE);
    jit->text = pages(TEXT, PROT_READ | PROT_WRITE | PROT_EXEC);
    jit->unwind = pages(UNWIND, PROT_READ | PROT_WRITE);
    unsigned char *starts[DEPTH], *end = emit_cie(jit->unwind);
    void *list[DEPTH + 1];
    for (unsigned i = 0; i < DEPTH; i++) {
        starts[i] = jit->text + i * STRIDE;
        jit->pads[i] = (number + i) % 4 + 1;
        emit_plain(starts[i], jit->pads[i]);
        list[i] = starts[i];
        const int length = snprintf(jit->names[i], sizeof jit->names[i], "f%u_%u", number, i);
        jit->functions[i] = (struct uu_function){.start = i * STRIDE, .len = PLAIN_BYTES, .unwind = UU_NO_UNWIND,
                                                 .name_len = (uint32_t)length, .name = jit->names[i]};
        if (kind == UU_WINDOW_EH_FRAME) {
            jit->functions[i].unwind = (uint32_t)(end - jit->unwind);
            end = emit_fde(end, jit->unwind, starts[i], jit->pads[i]);
        }
    }
    *(function **)&list[DEPTH] = leaf;
    struct uu_window window = {.size = sizeof window, .kind = kind, .text = jit->text, .text_len = TEXT,
                               .functions = jit->functions, .functions_room = DEPTH};
    if (kind == UU_WINDOW_RULE)
        window.rule = rule, window.user = jit;
    else
        window.unwind = jit->unwind, window.unwind_len = (size_t)(end - jit->unwind);
    if (kind == UU_WINDOW_SFRAME)
        window.unwind_len = emit_sframe(jit->unwind, starts, jit->pads, DEPTH);
    int result = uu_register_window(&window);
    if (result)
        die("uu_register_window", result);
    serial = number;
    function *first;
    memcpy(&first, list, sizeof first);
    for (int i = 0; i < 4; i++)
        first(list + 1);
    serial = 0;
    result = uu_unregister_window(jit->text);
    for (int i = 0; result == -ETIMEDOUT && i < 60; i++)
        result = uu_synchronize(uu_ticket(), 1000000000);
    if (result)
        die("uu_unregister_window", result);
    munmap(jit->text, TEXT);
    munmap(jit->unwind, UNWIND);
    munmap(jit, sizeof *jit);
    atomic_fetch_add(&windows, 1);
}

static void *work(void *first) {
    for (unsigned number = (unsigned)(size_t)first; !stop_all; number += THREADS)
        one(number);
    return first;
}

int main(int argc, char **argv) {
    (void)emit_framed;
    if (argc < 2 || (argc > 2 && uu_handle_faults()))
        return 2;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, 0);
    block_all();
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], 0, work, (void *)(i + 1)))
            return 2;
    struct timespec begun, now, pause = {0, 30000};
    clock_gettime(CLOCK_MONOTONIC, &begun);
    /* For this time, and until enough has been met. */
    do {
        for (size_t i = 0; i < THREADS; i++)
            pthread_kill(threads[i], SIGPROF);
        nanosleep(&pause, 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begun.tv_sec < atol(argv[1]) || through < 100 || windows < 300);
    stop_all = 1;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    printf("windows %ld walks %ld handled %ld through %ld refused %ld\n", windows, walks, handled, through, refused);
    return 0;
}
