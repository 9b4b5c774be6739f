/* locks - who waits for locks, and for how long, by mixed stacks. Preloaded, it takes each lock without waiting where that
 * is possible, which costs next to nothing; where it is not, it measures the wait, and adds it to the waiter's stack. When
 * the program ends, the stacks that waited longest go to the standard error.
 *
 *     cc -O2 -shared -fPIC -pthread -Itarget/uu/include -o locks.so examples/locks/locks.c -Ltarget/uu/lib -luunwind -Wl,-rpath,$PWD/target/uu/lib
 *     LD_PRELOAD=$PWD/locks.so python3 examples/locks/contend.py
 *
 * Locks: pthread_mutex_lock(3), and sem_wait(3), by which Python's threading.Lock waits. Other waits (condition variables,
 * reader-writer locks, timeouts) are not seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uu.h>

#define LOCAL static __thread __attribute__((tls_model("initial-exec")))

/* By a stack's number: a hash table that is only added to. */
enum { PLACES = 1 << 14, SHOWN = 5 };
static struct place {
    _Atomic uint32_t stack;
    _Atomic uint64_t nanoseconds, waits;
} places[PLACES];
static atomic_ulong lost, incomplete;
LOCAL int inside; /* in the tracer itself */
LOCAL uint64_t frames[1024];

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void add(const struct uu_request *walk, uint64_t nanoseconds) {
    uint32_t stack = uu_stack_id(frames, walk->words);
    incomplete += walk->stop != UU_STOP_COMPLETE || walk->doubt;
    for (size_t i = stack, n = 0; stack && n < PLACES; n++, i++) {
        struct place *place = &places[i % PLACES];
        uint32_t there = 0;
        if (atomic_compare_exchange_strong(&place->stack, &there, stack) || there == stack) {
            place->nanoseconds += nanoseconds;
            place->waits++;
            return;
        }
    }
    lost++;
}

/* Adds a wait since `start` to the caller's stack. Inlined, so that the interposer is the frame to be skipped. */
__attribute__((always_inline)) static inline void waited(uint64_t start) {
    const uint64_t nanoseconds = now() - start;
    const int error = errno;
    inside = 1;
    struct uu_request walk = {.size = sizeof walk, .frames = frames, .capacity = 1024, .skip = 1};
    uu_walk(&walk);
    add(&walk, nanoseconds);
    inside = 0;
    errno = error;
}

/* The C library's function of this name; two threads may find the same. */
static void *real(const char *name, void *_Atomic *found) {
    if (!*found)
        *found = dlsym(RTLD_NEXT, name);
    if (!*found)
        abort();
    return *found;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static void *_Atomic found;
    union {
        void *object;
        int (*function)(pthread_mutex_t *);
    } lock = {real("pthread_mutex_lock", &found)};
    int error = inside ? EBUSY : pthread_mutex_trylock(mutex);
    if (error != EBUSY)
        return error;
    const uint64_t start = now();
    error = lock.function(mutex);
    if (!inside)
        waited(start);
    return error;
}

int sem_wait(sem_t *semaphore) {
    static void *_Atomic found;
    union {
        void *object;
        int (*function)(sem_t *);
    } wait = {real("sem_wait", &found)};
    if (!inside && sem_trywait(semaphore) == 0)
        return 0;
    const uint64_t start = now();
    int result = wait.function(semaphore);
    if (!inside)
        waited(start);
    return result;
}

/* ---- The report ---- */

static int by_time(const void *a, const void *b) {
    uint64_t one = ((const struct place *)a)->nanoseconds, other = ((const struct place *)b)->nanoseconds;
    return (one < other) - (one > other);
}

__attribute__((constructor)) static void start(void) {
    inside = 1;
    uu_setup();
    inside = 0;
}

__attribute__((destructor)) static void end(void) {
    inside = 1;
    qsort(places, PLACES, sizeof *places, by_time);
    for (struct place *place = places; place < places + SHOWN && place->waits; place++) {
        fprintf(stderr, "%.1f ms in %llu waits:\n", (double)place->nanoseconds / 1e6, (unsigned long long)place->waits);
        const struct uu_symbol *symbols = 0;
        uu_symbolize(frames, uu_stack_frames(place->stack, frames, 1024), &symbols);
        for (const struct uu_symbol *s = symbols; s; s = s->next)
            fprintf(stderr, "    %s (%s:%u)\n", *s->function ? s->function : s->object, s->file, s->line);
        uu_symbols_free(symbols);
    }
    if (places->waits)
        fprintf(stderr, "%lu waits lost, %lu stacks incomplete\n", lost, incomplete);
}
