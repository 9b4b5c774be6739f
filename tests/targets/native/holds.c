/* holds - allocates and frees by every function of malloc(3), in threads that free each other's blocks, and counts it all
 * itself: what uu records of the function `work` must be the same.
 *
 *     holds THREADS ROUNDS [fork]
 *
 * It prints "total NUMBER BYTES", "live NUMBER BYTES", and of one thread "peak BYTES". With `fork`, children that allocate
 * and free, also what is their parent's, come and go meanwhile; they count for nothing. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 4096, KEPT = 700 };

struct block {
    size_t size; /* as asked for; the block holds it in its first bytes if there is room */
    void *at;
};
static _Atomic(struct block *) places[PLACES]; /* what any thread may take and free */
static struct block blocks[1 << 20];
static atomic_size_t blocks_used;
static atomic_ulong total, total_bytes, freed, freed_bytes, peak;
static long rounds;
static int alone;
static pthread_key_t key;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void held(void) {
    unsigned long now = total_bytes - freed_bytes;
    if (alone && now > peak)
        peak = now;
}

static void add(size_t size) { total++, total_bytes += size, held(); }
static void sub(size_t size) { freed++, freed_bytes += size; }

static size_t size_of(uint64_t random) {
    size_t bits = random >> 60;
    return (random >> 20 & 0xfff) % 300 << (bits == 0 ? 12 : bits == 1 ? 6 : 0);
}

static void *made(uint64_t random, size_t *size) {
    void *at = 0;
    size_t alignment = (size_t)16 << (random >> 40 & 7);
    switch (random >> 50 & 15) {
    case 0: at = calloc(3, *size), *size *= 3; break;
    case 1: at = memalign(alignment, *size); break;
    case 2: *size = (*size + alignment - 1) / alignment * alignment, at = aligned_alloc(alignment, *size); break;
    case 3:
        if (posix_memalign(&at, alignment, *size))
            abort();
        break;
    case 4: at = valloc(*size); break;
    case 5: at = pvalloc(*size); break;
    case 6: at = realloc(0, *size); break;
    case 7: at = reallocarray(0, 5, *size), *size *= 5; break;
    default: at = malloc(*size);
    }
    if (!at)
        abort();
    if (*size)
        memset(at, 1, *size < 64 ? *size : 64);
    return at;
}

static struct block *fresh(void) {
    size_t n = blocks_used++;
    return n < sizeof blocks / sizeof *blocks ? &blocks[n] : 0;
}

__attribute__((noinline)) void work(uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
    struct block *own = 0; /* one that carries an address from place to place */
    for (long round = 0; round < rounds; round++) {
        uint64_t random = next(&state);
        _Atomic(struct block *) *place = &places[random % (alone ? KEPT : PLACES)];
        struct block *block = atomic_exchange(place, 0);
        if (!block) {
            if (!(own = own ? own : fresh()))
                continue;
            own->size = size_of(next(&state));
            own->at = made(next(&state), &own->size);
            add(own->size);
            struct block *none = 0;
            if (atomic_compare_exchange_strong(place, &none, own)) {
                own = 0;
                continue;
            }
            block = own, own = 0;
        }
        size_t new = size_of(next(&state));
        if (random >> 33 & 1 && new) {
            void *at = random >> 34 & 1 ? realloc(block->at, new) : reallocarray(block->at, 1, new);
            if (!at)
                abort();
            sub(block->size);
            block->at = at, block->size = new;
            add(new);
            struct block *none = 0;
            if (atomic_compare_exchange_strong(place, &none, block))
                continue;
        }
        /* One that cannot grow stays. */
        if (random >> 35 & 1 && realloc(block->at, (size_t)PTRDIFF_MAX / 2))
            abort();
        sub(block->size);
        free(block->at);
        own = block;
    }
}

static void at_end(void *rest) {
    /* After the destructor by which uu sees the end of a thread, at the latest in the last of several rounds. */
    static _Thread_local int times;
    if (++times < 3) {
        pthread_setspecific(key, rest);
        return;
    }
    free(rest);
    sub(100);
}

static void *run(void *seed) {
    work((uintptr_t)seed);
    return 0;
}

__attribute__((noinline)) static void *thread(void *seed) {
    run(seed);
    return 0;
}

__attribute__((noinline)) void keep_rest(void);

static void *thread_with_rest(void *seed) {
    keep_rest();
    return thread(seed);
}

/* What a thread frees after all else, in a function whose name begins as the other's. */
__attribute__((noinline)) void keep_rest(void) {
    void *rest = malloc(100);
    add(100);
    pthread_setspecific(key, rest);
}

static void child(void) {
    for (int i = 0; i < 200; i++) {
        struct block *block = places[i];
        if (block)
            free(block->at);
        void *volatile other = malloc(1000 + i);
        if (i % 2)
            free(other);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 1;
    rounds = argc > 2 ? atol(argv[2]) : 1000;
    alone = threads == 1;
    int forks = argc > 3 && !strcmp(argv[3], "fork");
    pthread_key_create(&key, at_end);
    if (alone)
        thread((void *)7);
    else {
        pthread_t ids[64];
        for (long i = 0; i < threads; i++)
            if (pthread_create(&ids[i], 0, thread_with_rest, (void *)(i + 1)))
                abort();
        for (int i = 0; forks && i < 10; i++) {
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
    printf("total %lu %lu\nlive %lu %lu\n", total, total_bytes, total - freed, total_bytes - freed_bytes);
    if (alone)
        printf("peak %lu\n", peak);
    return 0;
}
