/* A chain of calls through frames of every kind that compilers make for AArch64, in an order that `seed` determines. Each function
 * stores its return address in `shadow`, outermost first: the expected stack. Compiled with and without signed return addresses, and
 * with frame pointers alone (see ci/aarch64). */
#include <alloca.h>
#include <stdlib.h>
#include <string.h>

#define MOST 512

void *volatile shadow[MOST];
volatile int shadow_depth;

#define ENTER() (shadow[shadow_depth] = __builtin_return_address(0), shadow_depth++)
#define LEAVE() (shadow_depth--)
#define KIND __attribute__((noinline, noclone)) static long

typedef void (*leaf)(void);

__attribute__((noinline)) long chain(int depth, unsigned seed, leaf at_end);

static unsigned next(unsigned seed) {
    return seed * 1103515245u + 12345u;
}

/* x29, x30 and little else. */
KIND plain(int depth, unsigned seed, leaf at_end) {
    ENTER();
    long n = chain(depth, seed, at_end) + depth;
    LEAVE();
    return n;
}

/* Too large for one instruction's offset. */
KIND large(int depth, unsigned seed, leaf at_end) {
    volatile char room[70000];
    ENTER();
    room[seed % sizeof room] = (char)depth;
    long n = chain(depth, seed, at_end) + room[seed % sizeof room];
    LEAVE();
    return n;
}

/* A frame whose size is known only to x29. */
KIND varying(int depth, unsigned seed, leaf at_end) {
    ENTER();
    size_t size = 16 + seed % 300;
    volatile char *room = alloca(size);
    memset((char *)room, depth, size);
    long n = chain(depth, seed, at_end) + room[size / 2];
    LEAVE();
    return n;
}

/* Every callee-saved register, also those of floating point. */
KIND saving(int depth, unsigned seed, leaf at_end) {
    ENTER();
    long a = seed, b = a * 3, c = a ^ b, d = b + c, e = c - a, f = d * 7, g = e ^ f, h = g + b, i = h * a, j = i - c;
    double x = a, y = x * 1.5, z = y - b, w = z * x;
    long n = chain(depth, seed, at_end);
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h), "+r"(i), "+r"(j));
    LEAVE();
    return n + a + b + c + d + e + f + g + h + i + j + (long)(x + y + z + w);
}

/* A branch that needs no frame (and is never taken) before one that does: what GCC calls shrink-wrapping. */
KIND wrapped(int depth, unsigned seed, leaf at_end) {
    if (depth < 0)
        return seed;
    ENTER();
    long n = chain(depth, seed, at_end) * 5;
    LEAVE();
    return n;
}

struct call {
    int depth;
    unsigned seed;
    leaf at_end;
    long result;
    int done;
};

static struct call *volatile under_way;

static int compare(const void *a, const void *b) {
    struct call *call = under_way;
    if (!call->done) {
        call->done = 1;
        ENTER();
        call->result = chain(call->depth, call->seed, call->at_end);
        LEAVE();
    }
    return *(const int *)a - *(const int *)b;
}

/* Through the C library, which calls back. */
KIND sorting(int depth, unsigned seed, leaf at_end) {
    ENTER();
    struct call call = {depth, seed, at_end, 0, 0};
    struct call *outer = under_way;
    int numbers[] = {3, 1, 2};
    under_way = &call;
    qsort(numbers, 3, sizeof numbers[0], compare);
    under_way = outer;
    LEAVE();
    return call.result + numbers[0];
}

__attribute__((noinline)) long chain(int depth, unsigned seed, leaf at_end) {
    ENTER();
    long n = 0;
    if (depth <= 0) {
        at_end();
    } else {
        unsigned then = next(seed);
        switch ((seed >> 16) % 6) {
        case 0: n = plain(depth - 1, then, at_end); break;
        case 1: n = large(depth - 1, then, at_end); break;
        case 2: n = varying(depth - 1, then, at_end); break;
        case 3: n = saving(depth - 1, then, at_end); break;
        case 4: n = wrapped(depth - 1, then, at_end); break;
        default: n = sorting(depth - 1, then, at_end); break;
        }
    }
    LEAVE();
    return n + 1;
}
