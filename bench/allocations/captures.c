/* Captures inside malloc(3), as a profiler of allocations takes them, in programs that know nothing of it: to be preloaded.
   Every CAPTURES_EVERY-th allocation of a thread is captured by one of the unwinders, in turn. At exit, what each took is
   written to the file CAPTURES_TO: its name, the captures, their cycles of the time stamp counter, those of a capture
   at the median and at the 90th percentile, frames, and how many captures were complete (uu_capture only). CAPTURES_MODE:
   "nothing", "handled" (uu_handle_faults()) or "prepared" (and uu_setup()). */
#define _GNU_SOURCE
#include "uu.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#define MOST 256
#define KEPT (1 << 20)

extern void *__libc_malloc(size_t size);
static int (*unw_backtrace)(void **frames, int count);
static unsigned long every;
static struct {
    const char *name;
    unsigned long count, cycles, frames, complete;
    unsigned *each;
} unwinders[3] = {{.name = "uu_capture"}, {.name = "unw_backtrace"}, {.name = "libgcc"}};
static __thread __attribute__((tls_model("initial-exec"))) unsigned long allocations;
static __thread __attribute__((tls_model("initial-exec"))) int busy;

__attribute__((noinline)) static void capture(unsigned which) {
    uint64_t frames[MOST];
    uint16_t stop = 0;
    size_t count = 0;
    const unsigned long long begin = __rdtsc();
    switch (which) {
    case 0:
        count = uu_capture(frames, MOST, NULL, &stop);
        break;
    case 1:
        count = (size_t)unw_backtrace((void **)frames, MOST);
        break;
    default:
        count = (size_t)backtrace((void **)frames, MOST);
    }
    const unsigned long took = __rdtsc() - begin;
    const unsigned long number = __atomic_fetch_add(&unwinders[which].count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&unwinders[which].cycles, took, __ATOMIC_RELAXED);
    __atomic_fetch_add(&unwinders[which].frames, count, __ATOMIC_RELAXED);
    __atomic_fetch_add(&unwinders[which].complete, stop == UU_STOP_COMPLETE, __ATOMIC_RELAXED);
    if (number < KEPT)
        unwinders[which].each[number] = took < ~0u ? (unsigned)took : ~0u;
}

void *malloc(size_t size) {
    if (every != 0 && !busy && ++allocations % every == 0) {
        busy = 1;
        capture((unsigned)(allocations / every % 3));
        busy = 0;
    }
    return __libc_malloc(size);
}

static int by_size(const void *a, const void *b) {
    const unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

static void report(void) {
    busy = 1;
    FILE *const to = fopen(getenv("CAPTURES_TO"), "a");
    for (unsigned which = 0; to && which < 3; which++) {
        const unsigned long count = unwinders[which].count, kept = count < KEPT ? count : KEPT;
        if (kept == 0)
            continue;
        qsort(unwinders[which].each, kept, sizeof(unsigned), by_size);
        fprintf(to, "%s %lu %lu %u %u %lu %lu\n", unwinders[which].name, count, unwinders[which].cycles,
                unwinders[which].each[kept / 2], unwinders[which].each[kept * 9 / 10], unwinders[which].frames,
                unwinders[which].complete);
    }
    if (to)
        fclose(to);
}

__attribute__((constructor)) static void begin(void) {
    const char *const mode = getenv("CAPTURES_MODE");
    void *warm[4];
    if (!mode || !getenv("CAPTURES_TO") || !getenv("CAPTURES_EVERY"))
        return;
    busy = 1;
    backtrace(warm, 4);
    void *const library = dlopen("libunwind.so.8", RTLD_NOW);
    *(void **)&unw_backtrace = library ? dlsym(library, "unw_backtrace") : NULL;
    if (!unw_backtrace || (strcmp(mode, "nothing") != 0 && uu_handle_faults() != 0) ||
        (strcmp(mode, "prepared") == 0 && uu_setup() < 0))
        abort();
    for (unsigned which = 0; which < 3; which++)
        unwinders[which].each = calloc(KEPT, sizeof(unsigned));
    atexit(report);
    every = strtoul(getenv("CAPTURES_EVERY"), NULL, 10);
    busy = 0;
}
