/* Tail calls and inlined functions between main and a sample: main calls `first`, which jumps to `middle`, which jumps to
 * `leaf`; and the same in another object. Functions that are called as usual, and one in two parts, are no tail calls. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int tail_library(int n, int (*callback)(int));

__attribute__((noipa)) int leaf(int n) {
    raise(SIGPROF);
    return n + 1;
}

__attribute__((noipa)) int middle(int n) {
    return leaf(n * 3);
}

__attribute__((noipa)) int first(int n) {
    return middle(n + 7);
}

__attribute__((noipa)) int leaves(int n) {
    return tail_library(n + 7, leaf);
}

__attribute__((noipa)) int by_pointer(int n, int (*next)(int)) {
    return next(n + 1);
}

__attribute__((noipa, cold)) void rarely(int n) {
    leaf(n);
    printf("rare\n");
}

/* What is rare lies apart from the rest, in split.cold, to which split jumps. */
__attribute__((noipa)) int split(int n) {
    if (__builtin_expect(n > 1000, 0)) {
        rarely(n);
        if (leaf(n) == 7)
            abort();
    }
    return leaf(n) + 2;
}

static inline __attribute__((always_inline)) int inlined_one(int n) {
    return first(n) + 5;
}

static inline __attribute__((always_inline)) int inlined_two(int n) {
    return inlined_one(n) * 3;
}

int main(void) {
    int sum = 0;
    for (int i = 0; i < 5; i++) {
        sum += inlined_two(i);
        sum += leaf(i);
        sum += leaves(i);
        sum += by_pointer(i, leaf);
        sum += split(i) + split(i + 2000);
    }
    return sum == 0;
}
