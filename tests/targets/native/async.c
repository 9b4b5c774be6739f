/* A timer of 5 kHz interrupts a deep chain of calls anywhere, prologues and epilogues included; its handler captures the stack
   from the ucontext, and compares it with the chain: at any moment the frames are the first m functions of the path that is
   being walked, outermost first, for some m. Paths are random; the functions have frames of every shape that gcc makes.
   Prints the number of captures, and how many were wrong. */
#define _GNU_SOURCE
#include "uu.h"

#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH 60
#define MOST 256
#define CHAIN __attribute__((noinline, noclone, section("chain_text")))

typedef unsigned (*function)(unsigned depth, unsigned s);
static function path[DEPTH];
static unsigned sink_of_all;

extern const char __start_chain_text[], __stop_chain_text[];

#define NEXT(s) (depth + 1 < DEPTH ? path[depth + 1](depth + 1, (s)) : sink_of_all)

/* A small frame; a large one; saved registers; one of variable size, with rbp; a realigned one; a leaf now and then. */
#define SIX(n)                                                                                                        \
    CHAIN static unsigned small##n(unsigned depth, unsigned s) { return NEXT(s * 3 + n) + 1; }                          \
    CHAIN static unsigned large##n(unsigned depth, unsigned s) {                                                        \
        volatile unsigned char room[40 + 24 * n];                                                                       \
        room[s % sizeof room] = (unsigned char)s;                                                                       \
        unsigned r = NEXT(s + n);                                                                                       \
        return r + room[s % sizeof room];                                                                               \
    }                                                                                                                   \
    CHAIN static unsigned saves##n(unsigned depth, unsigned s) {                                                        \
        unsigned a = s * 3, b = s ^ n, c = s + 7, d = s / 3, e = s * s;                                                 \
        unsigned r = NEXT(s + n);                                                                                       \
        return r ^ a ^ b ^ c ^ d ^ e;                                                                                   \
    }                                                                                                                   \
    CHAIN static unsigned varied##n(unsigned depth, unsigned s) {                                                       \
        volatile unsigned char *room = alloca(16 + (s + n) % 200);                                                      \
        room[s % 16] = (unsigned char)n;                                                                                \
        unsigned r = NEXT(s + room[s % 16]);                                                                            \
        return r + room[0];                                                                                             \
    }                                                                                                                   \
    CHAIN static unsigned aligned##n(unsigned depth, unsigned s) {                                                      \
        __attribute__((aligned(64))) volatile unsigned room[16];                                                        \
        room[s & 15] = s + n;                                                                                           \
        unsigned r = NEXT(s + room[s & 15]);                                                                            \
        return r + room[n & 15];                                                                                        \
    }                                                                                                                   \
    CHAIN static unsigned branches##n(unsigned depth, unsigned s) {                                                     \
        if (s % 7 == n)                                                                                                 \
            return NEXT(s + 1) + 2;                                                                                     \
        volatile unsigned long room[5];                                                                                 \
        room[s % 5] = s;                                                                                                \
        unsigned r = NEXT((unsigned)room[s % 5] + n) * 5;                                                               \
        return s % 3 ? r + (unsigned)room[s % 5] : r;                                                                   \
    }
SIX(0) SIX(1) SIX(2) SIX(3) SIX(4) SIX(5) SIX(6)

#define NAMES(n) small##n, large##n, saves##n, varied##n, aligned##n, branches##n,
static function all[] = {NAMES(0) NAMES(1) NAMES(2) NAMES(3) NAMES(4) NAMES(5) NAMES(6)};
#define COUNT (sizeof all / sizeof all[0])

static volatile long captures;
static long wrong, chained;
static char first_wrong[256];

/* The function around an address of the chain's code: `all` is sorted by address. */
static function around(uint64_t address) {
    size_t low = 0, high = COUNT;
    if (address < (uint64_t)(uintptr_t)__start_chain_text || address >= (uint64_t)(uintptr_t)__stop_chain_text)
        return 0;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if ((uint64_t)(uintptr_t)all[middle] <= address)
            low = middle;
        else
            high = middle;
    }
    return all[low];
}

static void handler(int number, siginfo_t *info, void *context) {
    uint64_t frames[MOST];
    uint16_t stop = 0;
    size_t count = uu_capture(frames, MOST, context, &stop), first = count, last = 0;
    (void)number;
    (void)info;
    captures++;
    int good = stop == UU_STOP_COMPLETE;
    for (size_t i = 0; i < count; i++) {
        int exact = (frames[i] & UU_FRAME_EXACT) != 0;
        if (around(UU_FRAME_ADDRESS(frames[i]) - !exact)) {
            first = i < first ? i : first;
            last = i;
        }
    }
    /* What lies before the chain is the kernel's, the handler's or nothing; inside, there is the path and nothing else. */
    for (size_t i = first; good && first < count && i <= last; i++) {
        int exact = (frames[i] & UU_FRAME_EXACT) != 0;
        good = last - i < DEPTH && around(UU_FRAME_ADDRESS(frames[i]) - !exact) == path[last - i];
    }
    good = good && (first == count || first == 0);
    chained += first < count;
    if (!good && !wrong++)
        snprintf(first_wrong, sizeof first_wrong, "capture %ld: stop %u, %zu frames, chain %zu..%zu, leaf %#lx, path[0] %p",
                 captures, stop, count, first, last, (unsigned long)frames[0], (void *)(uintptr_t)path[0]);
}

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (const function *)a, y = (uintptr_t) * (const function *)b;
    return x < y ? -1 : x > y;
}

static void storm(long wanted) {
    sigset_t timed;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec period = {{0, 200000}, {0, 200000}}, off = {{0, 0}, {0, 0}};
    timer_t timer;
    unsigned seed = 12345;
    sigemptyset(&timed);
    sigaddset(&timed, SIGUSR1);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &period, 0);
    while (captures < wanted) {
        /* The path changes while no capture can see it. */
        sigprocmask(SIG_BLOCK, &timed, 0);
        for (unsigned i = 0; i < DEPTH; i++)
            path[i] = all[(seed = seed * 1103515245u + 12345u) / 65536u % COUNT];
        sigprocmask(SIG_UNBLOCK, &timed, 0);
        for (unsigned i = 0; i < 200; i++)
            sink_of_all += path[0](0, seed + i);
    }
    timer_settime(timer, 0, &off, 0);
    timer_delete(timer);
}

int main(int count, char **arguments) {
    long wanted = count > 1 ? atol(arguments[1]) : 5000;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    qsort(all, COUNT, sizeof all[0], by_address);
    if (uu_handle_faults() != 0 || sigaction(SIGUSR1, &action, 0) != 0)
        return 2;
    for (int tables = 0; tables < 2; tables++) {
        if (tables && uu_setup() < 2)
            return 3;
        captures = chained = wrong = 0;
        storm(wanted);
        printf("%s: captures %ld, in the chain %ld, wrong %ld %s\n", tables ? "tables" : "in place", captures, chained,
               wrong, first_wrong);
    }
    return 0;
}
