/* temporaries - allocates, maps and frees, often before the thread allocates anything else, and counts that itself:
 * what uu records of the function `work` must be the same.
 *
 *     temporaries THREADS ROUNDS
 *
 * It prints "total NUMBER BYTES" and "temporary NUMBER BYTES". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PLACES = 64, PAGE = 4096, THREADS = 16 };

struct block {
    void *at;
    size_t size;
    int is_mapped;
    unsigned long number;
};
static _Atomic(struct block *) places[PLACES]; /* what any thread may take and free */
static struct block blocks[THREADS * 2 + PLACES];
static atomic_size_t blocks_used;
static atomic_ulong made, total, total_bytes, temporary, temporary_bytes;
static long rounds;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Counts a new block, the last one of the thread. */
static void add(struct block *block, unsigned long *last) {
    if (!block->at || block->at == MAP_FAILED)
        abort();
    *last = block->number = ++made;
    total += 1, total_bytes += block->size;
}

/* Counts one that is about to go. */
static void sub(const struct block *block, const unsigned long *last) {
    if (block->number == *last)
        temporary += 1, temporary_bytes += block->size;
}

static void make(struct block *block, uint64_t random, unsigned long *last) {
    block->is_mapped = !(random & 7);
    block->size = block->is_mapped ? PAGE * (1 + (random >> 20) % 30) : (random >> 20) % (random >> 60 ? 300 : 20000);
    if (block->is_mapped)
        block->at = mmap(0, block->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
        block->at = random & 8 ? calloc(1, block->size) : malloc(block->size);
    add(block, last);
}

static void drop(struct block *block, uint64_t random, unsigned long *last) {
    if (!block->is_mapped) {
        sub(block, last);
        free(block->at);
    } else if (block->size > PAGE && random & 1) {
        /* In two parts: it does not go at once. */
        if (munmap(block->at, PAGE) || munmap((char *)block->at + PAGE, block->size - PAGE))
            abort();
    } else {
        sub(block, last);
        if (munmap(block->at, block->size))
            abort();
    }
}

/* Another size: it goes, and a new one comes. */
static void change(struct block *block, uint64_t random, unsigned long *last) {
    size_t size = 1 + random % 5000;
    sub(block, last);
    if (block->is_mapped) {
        block->at = mremap(block->at, block->size, block->size + PAGE, MREMAP_MAYMOVE);
        block->size += PAGE;
    } else
        block->at = realloc(block->at, size), block->size = size;
    add(block, last);
}

__attribute__((noinline)) void work(uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
    unsigned long last = 0;
    struct block *one = &blocks[blocks_used++], *two = &blocks[blocks_used++], *other;
    for (long round = 0; round < rounds; round++) {
        uint64_t random = next(&state);
        make(one, next(&state), &last);
        switch (random & 7) {
        case 0: /* with another one in between */
            make(two, next(&state), &last);
            drop(one, next(&state), &last);
            drop(two, next(&state), &last);
            break;
        case 1: /* the other way round */
            make(two, next(&state), &last);
            drop(two, next(&state), &last);
            drop(one, next(&state), &last);
            break;
        case 2:
            change(one, next(&state), &last);
            drop(one, next(&state), &last);
            break;
        case 3: /* exchanged with one of another thread, or of long ago */
        case 4:
            other = atomic_exchange(&places[random >> 8 & (PLACES - 1)], one);
            if (other)
                drop(other, next(&state), &last);
            one = other ? other : &blocks[blocks_used++];
            break;
        default:
            drop(one, next(&state), &last);
        }
    }
}

__attribute__((noinline)) static void *thread(void *seed) {
    work((uintptr_t)seed);
    return 0;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 1;
    rounds = argc > 2 ? atol(argv[2]) : 1000;
    pthread_t ids[THREADS];
    for (long i = 0; i < threads && i < THREADS; i++)
        if (pthread_create(&ids[i], 0, thread, (void *)(i + 1)))
            abort();
    for (long i = 0; i < threads && i < THREADS; i++)
        pthread_join(ids[i], 0);
    printf("total %lu %lu\ntemporary %lu %lu\n", total, total_bytes, temporary, temporary_bytes);
    return 0;
}
