/* A JIT that emits real machine code into several windows, one for each kind of unwind data, and lives through what
 * JITs live through: it fills windows function by function, copies live code into new windows in one epoch swap, waits
 * until no walk reads the old ones, and wipes them. After every step it captures a stack that runs through all windows,
 * and compares it with what it expects; a timer captures all the while, wherever it happens to hit.
 *
 *     cc -O2 -Itarget/uu/include -o jit examples/jit/jit.c -Ltarget/uu/lib -luunwind -Wl,-rpath,target/uu/lib
 *     ./jit
 *     target/uu/bin/uu record --explicit -- ./jit signal
 *
 * Without an argument it captures by uu_capture(). With "signal" it sends itself SIGPROF instead, for a recorder, and
 * prints the stacks that it expects.
 */
#define _GNU_SOURCE
#include "emit.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#if defined __has_include
#if __has_include(<uu_plugin.h>)
#include <uu_plugin.h>
#define HAS_STEPPER 1
#endif
#endif

enum { TEXT = 4096, UNWIND = 16384, FUNCTIONS = 40, STRIDE = 32 };

/* A window and its tables. */
struct area {
    uint32_t kind;
    unsigned epoch, count;
    unsigned char *text, *unwind;
    size_t unwind_len;
    unsigned pads[FUNCTIONS];
    struct uu_function functions[FUNCTIONS];
    char names[FUNCTIONS][32];
    uint64_t published;
};

static void *pages(size_t size, int protection) {
    void *at = mmap(0, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

static int framed(const struct area *area) {
    return area->kind == UU_WINDOW_FRAME_POINTER || area->kind == UU_WINDOW_OPAQUE;
}

/* Index of the function at `pc`. Functions lie at multiples of STRIDE; those of descending areas come from the end. */
static unsigned index_of(const struct area *area, uint64_t pc) {
    return (unsigned)((pc - (uintptr_t)area->text) / STRIDE);
}

/* In handlers: pure functions of pc. */
static uint32_t rule(void *user, uint64_t pc, struct uu_rule *out) {
    const struct area *area = user;
    const unsigned index = index_of(area, pc);
    if (index >= area->count)
        return 0;
    give_rule((unsigned)(pc - (uintptr_t)area->text) % STRIDE, area->pads[index], out);
    return 1;
}

static size_t name(void *user, uint64_t pc, char *buffer, size_t room, uint64_t *start) {
    const struct area *area = user;
    const unsigned index = index_of(area, pc);
    if (index >= area->count || strlen(area->names[index]) > room)
        return 0;
    *start = (uintptr_t)area->text + index * STRIDE;
    memcpy(buffer, area->names[index], strlen(area->names[index]));
    return strlen(area->names[index]);
}

#ifdef HAS_STEPPER
static uint32_t step(struct uu_view *view) {
    const struct area *area = view->user;
    const unsigned index = index_of(area, view->pc);
    if (index >= area->count)
        return UU_STEP_NATIVE;
    struct uu_rule by = {0};
    give_rule((unsigned)(view->pc - (view->exact ? 0 : 1) - (uintptr_t)area->text) % STRIDE, area->pads[index], &by);
    const uint64_t cfa = view->sp + (uint64_t)by.offset;
    if (by.slots[1] != UU_SAME && !view->host->read_word(view->walk, cfa - 16, &view->caller->registers[6]))
        return UU_STEP_LOST;
    if (!view->host->read_word(view->walk, cfa - 8, &view->caller->pc))
        return UU_STEP_LOST;
    view->caller->registers[7] = cfa;
    return UU_STEP_DONE;
}
#endif

/* Emits one more function, with its unwind data, and publishes it. */
static void add(struct area *area) {
    const unsigned i = area->count;
    unsigned char *at = area->text + i * STRIDE;
    area->pads[i] = 1 + (i * 7 + area->kind) % 6;
    mprotect(area->text, TEXT, PROT_READ | PROT_WRITE);
    if (framed(area))
        emit_framed(at);
    else
        emit_plain(at, area->pads[i]);
    mprotect(area->text, TEXT, PROT_READ | PROT_EXEC);
    struct uu_function *function = &area->functions[i];
    snprintf(area->names[i], sizeof area->names[i], "jit_%u_%u_epoch_%u", area->kind, i, area->epoch);
    function->start = i * STRIDE;
    function->len = framed(area) ? FRAMED_BYTES : PLAIN_BYTES;
    function->unwind = UU_NO_UNWIND;
    function->name = area->names[i];
    function->name_len = (uint32_t)strlen(area->names[i]);
    if (area->kind == UU_WINDOW_EH_FRAME) {
        unsigned char *end = area->unwind + area->unwind_len;
        function->unwind = (uint32_t)area->unwind_len;
        area->unwind_len = (size_t)(emit_fde(end, area->unwind, at, area->pads[i]) - area->unwind);
    }
    area->count = i + 1;
    uu_publish(&area->published, area->count);
}

/* A new area with `count` functions. */
static struct area *make(uint32_t kind, unsigned epoch, unsigned count) {
    struct area *area = pages(sizeof *area, PROT_READ | PROT_WRITE);
    area->kind = kind;
    area->epoch = epoch;
    area->text = pages(TEXT, PROT_READ | PROT_WRITE);
    area->unwind = pages(UNWIND, PROT_READ | PROT_WRITE);
    area->unwind_len = (size_t)(emit_cie(area->unwind) - area->unwind);
    while (area->count < count)
        add(area);
    if (kind == UU_WINDOW_SFRAME) {
        unsigned char *starts[FUNCTIONS];
        for (unsigned i = 0; i < count; i++)
            starts[i] = area->text + i * STRIDE;
        area->unwind_len = emit_sframe(area->unwind, starts, area->pads, count);
    }
    return area;
}

/* The window as uu is given it. Odd epochs grow (an SFrame section is whole at once); rule windows are named by
 * callback. */
static struct uu_window describe(struct area *area) {
    struct uu_window window;
    memset(&window, 0, sizeof window);
    window.size = sizeof window;
    window.kind = area->kind;
    window.text = area->text;
    window.text_len = TEXT;
    window.user = area;
    if (area->kind == UU_WINDOW_EH_FRAME || area->kind == UU_WINDOW_SFRAME) {
        window.unwind = area->unwind;
        window.unwind_len = area->kind == UU_WINDOW_EH_FRAME ? UNWIND : area->unwind_len;
    }
    if (area->kind == UU_WINDOW_RULE) {
        window.rule = rule;
        window.name = name;
        return window;
    }
#ifdef HAS_STEPPER
    if (area->kind == UU_WINDOW_STEPPER)
        window.step = step;
#endif
    window.functions = area->functions;
    window.functions_room = FUNCTIONS;
    window.flags = UU_WINDOW_GROWING;
    window.published = &area->published;
    return window;
}

static void wipe(struct area *area) {
    munmap(area->text, TEXT);
    munmap(area->unwind, UNWIND);
    munmap(area, sizeof *area);
}

/* ---- The path through all windows, and what a capture must say --------------------------------------------------- */

enum { MOST = 64 };
static void *path[MOST + 2];
static uint64_t wanted[MOST];
static const char *wanted_names[MOST];
static unsigned wanted_count;
static unsigned wanted_stop = UU_STOP_COMPLETE;
static int by_signal, checks, failures;

static void fail(const char *what, uint64_t found, uint64_t expected) {
    printf("FAILED: %s: %#llx, not %#llx\n", what, (unsigned long long)found, (unsigned long long)expected);
    failures++;
}

__attribute__((noinline)) static void leaf(void **rest) {
    static volatile unsigned sum;
    (void)rest;
    checks++;
    if (by_signal) {
        printf("stack");
        for (unsigned i = wanted_count; i-- > 0;)
            printf(" %s", wanted_names[i]);
        printf("\n");
        fflush(stdout);
        raise(SIGPROF);
        return;
    }
    uint64_t frames[256];
    uint16_t stop = 0;
    const size_t count = uu_capture(frames, 256, 0, &stop);
    unsigned found = 0;
    for (size_t i = 0; i < count; i++) {
        if (UU_FRAME_KIND(frames[i]) != UU_FRAME_WINDOW)
            continue;
        if (found < wanted_count && UU_FRAME_ADDRESS(frames[i]) != wanted[wanted_count - 1 - found])
            fail("frame", UU_FRAME_ADDRESS(frames[i]), wanted[wanted_count - 1 - found]);
        if (frames[i] & UU_FRAME_BY_FRAME_POINTER)
            fail("frame that nothing vouches for", i, 0);
        if (UU_FRAME_GENERATION(frames[++i]) == 0)
            fail("generation", 0, 1);
        found++;
    }
    if (found != (wanted_stop == UU_STOP_COMPLETE ? wanted_count : 1))
        fail("frames in windows", found, wanted_count);
    if (stop != wanted_stop)
        fail("stop", stop, wanted_stop);
    sum += found; /* not a tail call */
}

/* Calls through the newest and the oldest function of every area, twice over, and back. */
static void run(struct area **areas, unsigned count) {
    wanted_count = 0;
    for (unsigned i = 0; i < 4 * count; i++) {
        const struct area *area = areas[i % count];
        const unsigned index = i / count % 2 ? 0 : area->count - 1;
        unsigned char *at = area->text + index * STRIDE;
        wanted[wanted_count] = (uintptr_t)at + (framed(area) ? FRAMED_RETURN : PLAIN_RETURN);
        wanted_names[wanted_count] = area->names[index];
        path[++wanted_count] = at;
    }
    path[wanted_count + 1] = 0;
    function *end = leaf, *first;
    memcpy(&path[wanted_count + 1], &end, sizeof end);
    memcpy(&first, &path[1], sizeof first);
    first(path + 2);
}

/* After a frame of an opaque window there are no further frames. */
static void stop_here(void) {
    struct area *area = make(UU_WINDOW_OPAQUE, 0, 4);
    struct uu_window window = describe(area);
    const int registered = uu_register_window(&window);
    wanted_stop = UU_STOP_OPAQUE_WINDOW;
    run(&area, 1);
    wanted_stop = UU_STOP_COMPLETE;
    const int gone = uu_unregister_window(area->text);
    if (registered || gone)
        fail("opaque window", (uint64_t)registered, (uint64_t)gone);
    wipe(area);
}

/* ---- A timer that captures wherever it hits ---------------------------------------------------------------------- */

static volatile sig_atomic_t ticks, whole;

static void on_tick(int signal, siginfo_t *info, void *context) {
    static uint64_t frames[256];
    uint16_t stop = 0;
    (void)signal;
    (void)info;
    ticks++;
    whole += uu_capture(frames, 256, context, &stop) > 0 && stop == UU_STOP_COMPLETE;
}

int main(int argc, char **argv) {
    static const uint32_t kinds[] = {UU_WINDOW_FRAME_POINTER, UU_WINDOW_EH_FRAME, UU_WINDOW_SFRAME, UU_WINDOW_RULE,
#ifdef HAS_STEPPER
                                     UU_WINDOW_STEPPER
#endif
    };
    enum { AREAS = sizeof kinds / sizeof *kinds };
    by_signal = argc > 1 && strcmp(argv[1], "signal") == 0;
    const unsigned epochs = by_signal ? 3 : 200;
    struct itimerval every = {{0, 1000}, {0, 1000}};
    struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (!by_signal && (sigaction(SIGPROF, &action, 0) || setitimer(ITIMER_PROF, &every, 0)))
        return 2;

    struct area *areas[AREAS], *next[AREAS];
    for (unsigned i = 0; i < AREAS; i++) {
        areas[i] = make(kinds[i], 0, 4);
        struct uu_window window = describe(areas[i]);
        const int registered = uu_register_window(&window);
        if (registered)
            fail("register", (uint64_t)registered, 0);
    }
    for (unsigned epoch = 1; epoch <= epochs; epoch++) {
        run(areas, AREAS);
        /* Fill: functions appear in windows that are registered already. */
        for (unsigned i = 0; i < AREAS; i++)
            if (kinds[i] != UU_WINDOW_SFRAME && areas[i]->count < FUNCTIONS)
                add(areas[i]);
        run(areas, AREAS);
        /* Full: nothing is added any more, and half of the code lives on in new windows. One swap. */
        const void *old[AREAS];
        struct uu_window windows[AREAS];
        for (unsigned i = 0; i < AREAS; i++) {
            const int sealed = uu_seal_window(areas[i]->text);
            if (sealed)
                fail("seal", (uint64_t)sealed, 0);
            old[i] = areas[i]->text;
            next[i] = make(kinds[i], epoch, 2 + areas[i]->count / 2);
            windows[i] = describe(next[i]);
        }
        uint64_t ticket = 0;
        const int replaced = uu_replace_windows(old, AREAS, windows, AREAS, &ticket);
        if (replaced)
            fail("replace", (uint64_t)replaced, 0);
        run(next, AREAS);
        /* Nothing runs in the old windows (this program knows); wait until no walk reads them, either, and wipe. */
        const int waited = uu_synchronize(ticket, 1000000000);
        if (waited)
            fail("synchronize", (uint64_t)waited, 0);
        for (unsigned i = 0; i < AREAS; i++) {
            wipe(areas[i]);
            areas[i] = next[i];
        }
    }
    for (unsigned i = 0; i < AREAS; i++) {
        const int gone = uu_unregister_window(areas[i]->text);
        if (gone)
            fail("unregister", (uint64_t)gone, 0);
        wipe(areas[i]);
    }
    if (!by_signal) {
        struct itimerval never = {{0, 0}, {0, 0}};
        setitimer(ITIMER_PROF, &never, 0);
    }
    if (!by_signal)
        stop_here();
    printf("%d kinds, %d stacks, %d wrong\n", (int)AREAS, checks, failures);
    fprintf(stderr, "%d of %d captures by timer were whole\n", (int)whole, (int)ticks);
    return failures != 0;
}
