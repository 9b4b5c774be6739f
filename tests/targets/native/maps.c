/* maps - maps and unmaps memory in every way, in threads that unmap each other's, and counts it all itself: what uu
 * records of the function `work` must be the same. By malloc it allocates large blocks, which libc maps.
 *
 *     maps THREADS ROUNDS [fork]
 *
 * It prints "total NUMBER BYTES", "live BYTES", of one thread "peak BYTES", and "blocks NUMBER BYTES" of malloc. With
 * `fork`, children that unmap what is their parent's, and map, come and go meanwhile; they count for nothing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 256, PAGE = 4096, MOST = 40 };

struct run {
    char *at;
    size_t pages;
};
static _Atomic(struct run *) places[PLACES]; /* what any thread may take and unmap */
static struct run runs[1 << 20];
static atomic_size_t runs_used;
static atomic_ulong total, total_pages, gone_pages, peak, blocks, block_bytes;
static long rounds;
static int alone, file;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void add(size_t pages) {
    total += 1, total_pages += pages;
    unsigned long now = total_pages - gone_pages;
    if (alone && now > peak)
        peak = now;
}
static void sub(size_t pages) { gone_pages += pages; }

static void *anonymous(void *at, size_t bytes, int protection, int flags) {
    void *mapped = mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (mapped == MAP_FAILED)
        abort();
    return mapped;
}

static void unmap(char *at, size_t pages) {
    if (munmap(at, pages * PAGE))
        abort();
    sub(pages);
}

/* What is no anonymous memory, or no memory, or fails. */
static void others(uint64_t random) {
    char *mapped;
    switch (random & 3) {
    case 0:
        mapped = mmap(0, 3 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
        if (mapped == MAP_FAILED || (mapped = mremap(mapped, 3 * PAGE, 7 * PAGE, MREMAP_MAYMOVE)) == MAP_FAILED ||
            munmap(mapped, 7 * PAGE))
            abort();
        break;
    case 1:
        mapped = anonymous(0, 64 * PAGE, PROT_NONE, 0);
        if (munmap(mapped, 64 * PAGE))
            abort();
        break;
    case 2:
        if (mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED || !munmap((char *)1, PAGE))
            abort();
        break;
    case 3:
        mapped = malloc(1 << 20);
        if (!mapped)
            abort();
        blocks += 1, block_bytes += 1 << 20;
        free(mapped);
    }
}

/* Changes a mapping of at least three pages, and keeps it as one. */
static void change(struct run *run, uint64_t random) {
    size_t part = 1 + random % (run->pages - 2), other = 1 + (random >> 8) % MOST;
    char *at = run->at, *moved;
    switch (random >> 16 & 7) {
    case 0: /* from its front */
        unmap(at, part), run->at += part * PAGE, run->pages -= part;
        break;
    case 1: /* from its end, by half a page more than all but one */
        if (munmap(at + (run->pages - part) * PAGE, part * PAGE - PAGE / 2))
            abort();
        sub(part), run->pages -= part;
        break;
    case 2: /* out of its middle, and what comes after that */
        unmap(at + PAGE, 1), unmap(at + 2 * PAGE, run->pages - 2), run->pages = 1;
        break;
    case 3: /* replaced in a part */
        sub(part);
        anonymous(at + PAGE, part * PAGE, PROT_READ | PROT_WRITE, MAP_FIXED);
        add(part);
        break;
    case 4: /* given back in a part, whose addresses are kept */
        anonymous(at + (run->pages - part) * PAGE, part * PAGE, PROT_NONE, MAP_FIXED);
        sub(part), run->pages -= part;
        if (munmap(at + run->pages * PAGE, part * PAGE))
            abort();
        break;
    case 5: /* larger, perhaps elsewhere; one that consists of several may stay as it is */
        moved = mremap(at, run->pages * PAGE, (run->pages + other) * PAGE, MREMAP_MAYMOVE);
        if (moved != MAP_FAILED)
            sub(run->pages), run->pages += other, run->at = moved, add(run->pages);
        break;
    case 6: /* smaller */
        if (mremap(at, run->pages * PAGE, (run->pages - part) * PAGE, 0) != MAP_FAILED)
            sub(part), run->pages -= part;
        break;
    case 7: /* onto another one */
        moved = anonymous(0, run->pages * PAGE, PROT_READ, 0);
        add(run->pages);
        if (mremap(at, run->pages * PAGE, run->pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) != MAP_FAILED)
            sub(2 * run->pages), run->at = moved, add(run->pages);
        else
            unmap(moved, run->pages);
    }
    /* One that cannot grow stays. */
    if (random >> 24 & 1 && mremap(run->at, run->pages * PAGE, (size_t)1 << 46, MREMAP_MAYMOVE) != MAP_FAILED)
        abort();
}

__attribute__((noinline)) void work(uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
    struct run *own = 0; /* one that carries a mapping from place to place */
    for (long round = 0; round < rounds; round++) {
        uint64_t random = next(&state);
        _Atomic(struct run *) *place = &places[random % PLACES];
        struct run *run = atomic_exchange(place, 0);
        if (!run) {
            size_t n = own ? 0 : runs_used++;
            if (!own && n >= sizeof runs / sizeof *runs)
                continue;
            run = own ? own : &runs[n], own = 0;
            run->pages = 1 + next(&state) % MOST;
            run->at = anonymous(0, run->pages * PAGE - 1, PROT_READ | PROT_WRITE, 0);
            add(run->pages);
        } else if (random >> 20 & 1 || run->pages < 3) {
            unmap(run->at, run->pages);
            own = run;
            continue;
        } else
            change(run, next(&state));
        if (!(random >> 30 & 7))
            others(next(&state));
        struct run *none = 0;
        if (!atomic_compare_exchange_strong(place, &none, run))
            unmap(run->at, run->pages), own = run;
    }
}

static void child(void) {
    for (int i = 0; i < PLACES; i++) {
        struct run *run = places[i];
        if (run && munmap(run->at, run->pages * PAGE))
            abort();
        char *other = anonymous(0, 3 * PAGE, PROT_READ, 0);
        if (i % 2 && munmap(other, 3 * PAGE))
            abort();
    }
    _exit(0);
}

__attribute__((noinline)) static void *thread(void *seed) {
    work((uintptr_t)seed);
    return 0;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 1;
    rounds = argc > 2 ? atol(argv[2]) : 1000;
    alone = threads == 1;
    if ((file = memfd_create("maps", 0)) < 0 || ftruncate(file, 64 * PAGE))
        abort();
    if (alone)
        thread((void *)7);
    else {
        pthread_t ids[64];
        for (long i = 0; i < threads; i++)
            if (pthread_create(&ids[i], 0, thread, (void *)(i + 1)))
                abort();
        for (int i = 0; argc > 3 && !strcmp(argv[3], "fork") && i < 10; i++) {
            pid_t pid = fork();
            if (pid == 0)
                child();
            int status = 1;
            if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
                abort();
        }
        for (long i = 0; i < threads; i++)
            pthread_join(ids[i], 0);
    }
    printf("total %lu %lu\nlive %lu\n", total, total_pages * PAGE, (total_pages - gone_pages) * PAGE);
    printf("blocks %lu %lu\n", blocks, block_bytes);
    if (alone)
        printf("peak %lu\n", peak * PAGE);
    return 0;
}
