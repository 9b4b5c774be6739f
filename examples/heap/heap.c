/* heap - a heap profiler: who holds the memory, by mixed stacks. Preloaded, it samples what malloc(3) and its relatives
 * give, once in 512 KiB on average (HEAP_RATE, in bytes), and keeps a stack's number with each sampled block until that
 * is freed. A program that calls heap_report() gets the live blocks on its standard error; with HEAP_AT_EXIT set, any
 * program does when it ends.
 *
 *     cc -O2 -shared -fPIC -Itarget/uu/include -o heap.so examples/heap/heap.c -Ltarget/uu/lib -luunwind -lm -Wl,-rpath,$PWD/target/uu/lib
 *     HEAP_RATE=65536 LD_PRELOAD=$PWD/heap.so python3 examples/heap/keeps.py
 *
 * A block of `size` bytes is sampled with the probability 1 - exp(-size / rate), as if every byte were drawn by itself;
 * so it stands for size / probability bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <uu.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

#define INLINE __attribute__((always_inline)) static inline
#define LOCAL static __thread __attribute__((tls_model("initial-exec")))

/* The live sampled blocks: a hash table by address. A block has one owner, so that only places are contended for. */
enum { PLACES = 1 << 18, PROBES = 64, FREE = 0, WAS_USED = 1, TAKEN = 2 };
static struct place {
    _Atomic uintptr_t block;
    double bytes; /* that it stands for */
    uint32_t stack;
} places[PLACES];
static atomic_ulong lost, incomplete; /* blocks; stacks */

static double rate = 512 * 1024;
LOCAL int inside;         /* in the profiler itself */
LOCAL double until_next;  /* bytes */
LOCAL uint64_t chance;    /* of this thread; 0: it has allocated nothing */
LOCAL uint64_t frames[1024];
static _Atomic int started;

static double gap(void) {
    chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
    return -log(((double)(chance >> 11) + 0.5) / 9007199254740992.0) * rate;
}

static size_t first_place(uintptr_t block) { return (block >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 46; }

static void keep(void *block, size_t size, const struct uu_request *walk) {
    uint32_t stack = uu_stack_id(frames, walk->words); /* 0: there is no stack, or no room for it */
    incomplete += walk->stop != UU_STOP_COMPLETE || walk->doubt;
    for (size_t i = first_place((uintptr_t)block), n = 0; n < PROBES; n++, i = (i + 1) % PLACES) {
        uintptr_t old = places[i].block;
        if (old > WAS_USED || !atomic_compare_exchange_strong(&places[i].block, &old, TAKEN))
            continue;
        places[i].bytes = (double)size / -expm1(-(double)size / rate);
        places[i].stack = stack;
        places[i].block = (uintptr_t)block;
        return;
    }
    lost++;
}

/* Counts a block, and samples it when its turn has come. Inlined, so that the interposer is the frame to be skipped. */
INLINE void *counted(void *block, size_t size) {
    if (!block || !started || inside || (until_next -= (double)size) > 0)
        return block;
    if (!chance) {
        static atomic_ulong threads;
        chance = ++threads * UINT64_C(0x9e3779b97f4a7c15);
        if ((until_next += gap()) > 0)
            return block;
    }
    int error = errno;
    inside = 1;
    struct uu_request walk = {.size = sizeof walk, .frames = frames, .capacity = 1024, .skip = 1};
    uu_walk(&walk);
    keep(block, size, &walk);
    while (until_next <= 0)
        until_next += gap();
    inside = 0;
    errno = error;
    return block;
}

/* Forgets a block; says whether it was sampled. */
static int forget(void *block) {
    for (size_t i = first_place((uintptr_t)block), n = 0; block && n < PROBES; n++, i = (i + 1) % PLACES) {
        uintptr_t here = places[i].block;
        if (here == (uintptr_t)block) {
            places[i].block = WAS_USED;
            return 1;
        }
        if (here == FREE)
            break;
    }
    return 0;
}

void *malloc(size_t size) { return counted(__libc_malloc(size), size); }
void *calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size), count * size); }
void *memalign(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size), size); }
void *aligned_alloc(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size), size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment)
        return EINVAL;
    void *found = counted(__libc_memalign(alignment, size), size);
    if (!found)
        return ENOMEM;
    *block = found;
    return 0;
}
void free(void *block) {
    forget(block);
    __libc_free(block);
}
void *realloc(void *block, size_t size) {
    int sampled = forget(block);
    void *grown = __libc_realloc(block, size);
    lost += sampled && !grown && size; /* it is where it was, but forgotten */
    return counted(grown, size);
}

/* ---- The report ---- */

struct sum { uint32_t stack, blocks; double bytes; };

static int by_stack(const void *a, const void *b) {
    uint32_t one = ((const struct sum *)a)->stack, other = ((const struct sum *)b)->stack;
    return (one > other) - (one < other);
}
static int by_bytes(const void *a, const void *b) {
    double one = ((const struct sum *)a)->bytes, other = ((const struct sum *)b)->bytes;
    return (one < other) - (one > other);
}

static void print_stack(uint32_t stack) {
    size_t words = uu_stack_frames(stack, frames, 1024);
    const struct uu_symbol *symbols = 0;
    if (!words || uu_symbolize(frames, words, &symbols) < 0)
        fprintf(stderr, "    no stack\n");
    for (const struct uu_symbol *s = symbols; s; s = s->next)
        fprintf(stderr, "    %s (%s:%u)\n", *s->function ? s->function : s->object, s->file, s->line);
    uu_symbols_free(symbols);
}

void heap_report(void);
void heap_report(void) {
    inside = 1;
    struct mallinfo2 truth = mallinfo2();
    struct sum *sums = __libc_calloc(PLACES, sizeof *sums);
    size_t count = 0, merged = 0;
    double all = 0;
    for (size_t i = 0; sums && i < PLACES; i++)
        if (places[i].block > TAKEN) {
            sums[count++] = (struct sum){places[i].stack, 1, places[i].bytes};
            all += places[i].bytes;
        }
    qsort(sums, count, sizeof *sums, by_stack);
    for (size_t i = 0; i < count; i++)
        if (merged && sums[merged - 1].stack == sums[i].stack) {
            sums[merged - 1].blocks++;
            sums[merged - 1].bytes += sums[i].bytes;
        } else
            sums[merged++] = sums[i];
    qsort(sums, merged, sizeof *sums, by_bytes);
    fprintf(stderr, "live %.0f bytes by %zu sampled blocks in %zu stacks; malloc says %zu\n", all, count, merged,
            truth.uordblks + truth.hblkhd);
    fprintf(stderr, "lost %lu blocks, %lu stacks are incomplete, %llu found no room\n", lost, incomplete,
            (unsigned long long)uu_stack_ids_lost());
    for (size_t i = 0; i < merged && i < 5; i++) {
        fprintf(stderr, "%.0f bytes in %u sampled blocks:\n", sums[i].bytes, sums[i].blocks);
        print_stack(sums[i].stack);
    }
    __libc_free(sums);
    inside = 0;
}

__attribute__((constructor)) static void start(void) {
    const char *wanted = getenv("HEAP_RATE");
    if (wanted && atof(wanted) >= 1)
        rate = atof(wanted);
    uu_setup();
    started = 1;
}

__attribute__((destructor)) static void end(void) {
    if (getenv("HEAP_AT_EXIT"))
        heap_report();
}
