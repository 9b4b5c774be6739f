/* Captures that are interrupted at an instruction, which the trap flag stops at: by captures of what was interrupted, or by a handler that
   leaves with siglongjmp. All threads have the same stack, one after the other, and mostly the same thread control block: what the library
   keeps of a thread is there for the next one. The truth is what was captured before faults were handled, when nothing is kept.

   Usage: interrupted_captures THREADS. Prints how many captures there were of each kind. */
#define _GNU_SOURCE
#include "uu.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100
#define SITES 7
#define MOST 80
/* At least the number of instructions of a capture that is replayed from the cache. */
#define SHORT 330
#define STACK (1 << 20)
#define NOINLINE __attribute__((noinline, noclone))

static struct { uint64_t words[MOST]; size_t count; } truth[SITES];
static enum { LEARN, NEST, LEAVE } part;
static unsigned long captures, nested, jumps;
static volatile int sink;

/* The next action. */
static size_t room;
static volatile int interrupt, over, site; /* `over`: it was, before it could be interrupted */
static volatile long left; /* instructions */
static sigjmp_buf back;
/* The page after it is not writable. */
static uint64_t *end;

static unsigned below(unsigned limit) {
    static uint64_t seed = 88172645463325252u;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((seed >> 33) % limit);
}

static void compare(const char *what, const uint64_t *words, size_t count, size_t capacity, int stop) {
    const size_t most = truth[site].count < capacity ? truth[site].count : capacity;
    const int reason = most == truth[site].count ? UU_STOP_COMPLETE : UU_STOP_BUFFER_FULL;
    if (count == most && stop == reason && !memcmp(words, truth[site].words, count * sizeof *words))
        return;
    printf("%s at %d, after %lu, room for %zu: %zu words, stop %d, of %zu\n", what, site, captures, capacity, count, stop, truth[site].count);
    for (size_t i = 0; i < MOST && (i < count || i < truth[site].count); i++)
        printf("%#lx, is %#lx\n", i < count ? (unsigned long)words[i] : 0, (unsigned long)truth[site].words[i]);
    fflush(stdout);
    _Exit(1);
}

static void on_trap(int number, siginfo_t *info, void *context) {
    greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    (void)number, (void)info;
    if (interrupt && left-- > 0)
        return;
    *flags &= ~(greg_t)TRAP_FLAG;
    if (!interrupt)
        return;
    interrupt = 0;
    if (part == LEAVE) {
        jumps++;
        siglongjmp(back, 1);
    }
    for (unsigned times = 1 + below(6); times; times--) {
        uint64_t words[MOST];
        uint16_t stop = 0;
        const size_t capacity = below(3) ? MOST : below(40), count = uu_capture(words, capacity, context, &stop);
        nested++;
        if (capacity < MOST)
            continue;
        /* Up to here they are the library's own, or none. */
        const size_t own = count - truth[site].count;
        if (own > 8)
            compare("nested", words, count, capacity, stop);
        words[own] = truth[site].words[0];
        compare("nested", words + own, truth[site].count, capacity, stop);
    }
}

static inline __attribute__((always_inline)) void capture(int here) {
    uint64_t *words = end - room;
    uint16_t stop = 0;
    site = here;
    if (interrupt)
        __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" ::"i"(TRAP_FLAG) : "cc", "memory");
    const size_t count = uu_capture(words, room, NULL, &stop);
    /* The next trap is the last. */
    over = interrupt;
    interrupt = 0;
    if (part == LEARN) {
        memcpy(truth[here].words, words, count * sizeof *words);
        truth[here].count = stop == UU_STOP_COMPLETE ? count : 0;
    }
    captures++;
    compare("capture", words, count, room, stop);
}

/* The ways to a capture: frames of each shape, few and many. */
NOINLINE static void plain(void) { capture(0), sink++; }
NOINLINE static void large(void) {
    volatile char room_[300];
    room_[0] = 1, capture(1), room_[1] = room_[0];
}
NOINLINE static void varied(void) {
    volatile char *p = __builtin_alloca(16 + sink % 1);
    p[0] = 1, capture(2), p[1] = p[0];
}
NOINLINE static void inner(void) { capture(3), sink++; }
NOINLINE static void two(void) {
    volatile char room_[40];
    room_[0] = 1, inner(), room_[1] = room_[0];
}
NOINLINE static void few(int depth) {
    depth ? few(depth - 1) : capture(4);
    sink++;
}
NOINLINE static void many(int depth) {
    depth ? many(depth - 1) : capture(5);
    sink++;
}
NOINLINE static void framed(int depth) {
    volatile char *p = __builtin_alloca(32 + depth % 1);
    p[0] = 1;
    depth ? framed(depth - 1) : capture(6);
    p[1] = p[0];
}
NOINLINE static void go(int to) {
    switch (to) {
    case 0: plain(); break;
    case 1: large(); break;
    case 2: varied(); break;
    case 3: two(); break;
    case 4: few(5); break;
    case 5: many(12); break;
    default: framed(3); break;
    }
    sink++;
}

/* A thread's first capture is interrupted, and others follow. */
static int nest(unsigned step) {
    static unsigned first, some, last;
    if (!step)
        over = 0, first = below(SITES), some = 1 + below(SITES), last = below(20), left = below(SHORT), interrupt = 1;
    const size_t near[] = {0, 1, 6, 7, 8, 9, 10, 16, 17, truth[0].count - 1, truth[0].count, truth[0].count + 1};
    room = below(3) ? MOST : near[below(sizeof near / sizeof near[0])];
    return step > last ? -1 : (int)((first + below(some)) % SITES);
}

/* A capture into a smaller buffer than before is left, at each of its instructions in turn. */
static int leave(unsigned step) {
    enum { BEFORE = 6, AFTER = 3, EACH = BEFORE + 1 + AFTER };
    static unsigned instruction;
    room = step % EACH < BEFORE ? MOST : 10;
    if (step % EACH == BEFORE)
        left = instruction++, interrupt = 1;
    return over ? -1 : 0;
}

NOINLINE static void plan(void) {
    int to;
    for (volatile unsigned step = 0;; step++) {
        room = MOST;
        to = part == NEST ? nest(step) : part == LEAVE ? leave(step) : step < SITES ? (int)step : -1;
        if (to < 0)
            return;
        if (!sigsetjmp(back, 1))
            go(to);
    }
}

NOINLINE static int deep(int depth) {
    volatile char *p = __builtin_alloca(depth % 3 ? 16 : 64);
    p[0] = 1;
    depth ? (void)deep(depth - 1) : plan();
    return p[0];
}

static void *thread(void *argument) {
    deep(14);
    return argument;
}

int main(int count, char **arguments) {
    const long threads = count > 1 ? atol(arguments[1]) : 1000;
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    if (pages == MAP_FAILED || stack == MAP_FAILED || mprotect(pages + 4096, 4096, PROT_NONE) || sigaction(SIGTRAP, &action, NULL))
        return 2;
    end = (uint64_t *)(pages + 4096);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK);
    /* One capture fills the cache, many nest, one is left. */
    for (long i = 0; i < threads + 2; i++) {
        pthread_t id;
        part = i == 0 ? LEARN : i <= threads ? NEST : LEAVE;
        if (pthread_create(&id, &attributes, thread, NULL) || pthread_join(id, NULL))
            return 3;
        if (part == LEARN && uu_handle_faults())
            return 4;
    }
    printf("captures %lu nested %lu left %lu\n", captures, nested, jumps);
    return 0;
}
