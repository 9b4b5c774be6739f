/* A random chain of calls that keeps its own list of return addresses, and compares each capture of it with that list. */
#ifndef SHADOW_H
#define SHADOW_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include "uu.h"

#define SHADOW_NOINLINE __attribute__((noinline, noclone))
enum { SHADOW_MOST = 64, SHADOW_ROOM = 160 };

struct shadow {
    void *calls[SHADOW_MOST]; /* outermost first */
    int depth;
    unsigned seed;
    long captures, wrong;
    void (*before)(void), (*after)(void); /* a capture; or null */
};

static unsigned shadow_below(struct shadow *s, unsigned limit) {
    s->seed = s->seed * 1103515245u + 12345u;
    return (s->seed >> 16) % limit;
}

/* The frames nearest the leaf are the capture's own function's, and those of the list. */
static int shadow_differs(const struct shadow *s, const uint64_t *words, size_t count, size_t capacity, int stop) {
    const size_t wanted = (size_t)s->depth + 1;
    if (stop == UU_STOP_BUFFER_FULL ? count != capacity : stop > UU_STOP_SWITCHED_STACK || count < wanted)
        return 1;
    for (size_t i = 1; i < count && i < wanted; i++)
        if (UU_FRAME_ADDRESS(words[i]) != (uint64_t)s->calls[s->depth - (int)i])
            return 1;
    return 0;
}

/* Nothing after the list's end is looked at, but how many frames there are: always the same number. */
static SHADOW_NOINLINE void shadow_capture(struct shadow *s) {
    uint64_t words[SHADOW_ROOM];
    uint16_t stop = 0;
    const size_t capacity = shadow_below(s, 4) ? SHADOW_ROOM : 1 + shadow_below(s, 30);
    s->calls[s->depth++] = __builtin_return_address(0);
    if (s->before)
        s->before();
    const size_t count = uu_capture(words, capacity, 0, &stop);
    if (s->after)
        s->after();
    s->captures++;
    if (shadow_differs(s, words, count, capacity, stop) && s->wrong++ < 3) {
        char line[96];
        const int length = snprintf(line, sizeof line, "%zu words, room for %zu, stop %d, depth %d\n", count, capacity, stop, s->depth);
        (void)!write(1, line, (size_t)length);
    }
    s->depth--;
}

static SHADOW_NOINLINE int shadow_step(struct shadow *s, int left);

#define SHADOW_FRAME(name, declaration)                              \
    static SHADOW_NOINLINE int name(struct shadow *s, int left) {    \
        declaration;                                                 \
        room[0] = (char)left;                                        \
        s->calls[s->depth++] = __builtin_return_address(0);          \
        const int deeper = shadow_step(s, left - 1);                 \
        s->depth--;                                                  \
        return deeper + room[0];                                     \
    }
SHADOW_FRAME(shadow_small, volatile char room[24])
SHADOW_FRAME(shadow_large, volatile char room[232])
SHADOW_FRAME(shadow_framed, volatile char *room = __builtin_alloca(16 + shadow_below(s, 5) * 16))

static SHADOW_NOINLINE int shadow_step(struct shadow *s, int left) {
    int deeper = 0;
    s->calls[s->depth++] = __builtin_return_address(0);
    if (left <= 0) {
        for (unsigned times = 1 + shadow_below(s, 3); times; times--)
            shadow_capture(s);
    } else {
        switch (shadow_below(s, 3)) {
        case 0: deeper = shadow_small(s, left); break;
        case 1: deeper = shadow_large(s, left); break;
        default: deeper = shadow_framed(s, left); break;
        }
    }
    s->depth--;
    return deeper + 1;
}

/* A random chain, mostly one of a few, so that chains repeat. */
static SHADOW_NOINLINE void shadow_run(struct shadow *s, int which) {
    const unsigned seed = s->seed;
    if (shadow_below(s, 4))
        s->seed = 77777u * shadow_below(s, 4) + (unsigned)which;
    s->depth = 0;
    shadow_step(s, (int)shadow_below(s, 14));
    s->seed = seed * 69069u + 1u;
}

#endif
