/* Frames of every kind that gcc makes at -O2 without frame pointers. */
#include "routines.h"

#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

int far_away(int n); /* in a shared object: called through the PLT */
int far_back(int (*back)(int), int n);

static volatile int sink;

NOINLINE static int leaf(int n) {
    return n * 3 + sink;
}

/* Needs every callee-saved register, and stack beside. */
NOINLINE static int many_registers(int n) {
    int a = leaf(n), b = leaf(a), c = leaf(b), d = leaf(c), e = leaf(d), f = leaf(e), g = leaf(f), h = leaf(g);
    return leaf(a + b) + leaf(c + d) + leaf(e + f) + leaf(g + h) + a * b * c * d * e * f * g * h;
}

NOINLINE static int with_alloca(int n) {
    char *buffer = alloca((size_t)n);
    buffer[0] = (char)n;
    sink += buffer[n / 2];
    return leaf(buffer[0]);
}

NOINLINE static int realigned(int n) {
    _Alignas(64) volatile char line[128];
    char *more = alloca((size_t)n);
    line[n & 63] = more[0] = (char)n;
    return leaf(line[n & 63]) + more[0];
}

NOINLINE static int big_frame(int n) {
    volatile char room[20000];
    room[n] = 1;
    room[19999] = 2;
    return leaf(room[n]) + room[19999];
}

NOINLINE static int tail_target(int n) {
    return leaf(n) + 1;
}

NOINLINE static int tail_call(int n) {
    sink += leaf(n);
    return tail_target(n + 1);
}

NOINLINE static int recursion(int n) {
    return n == 0 ? leaf(n) : recursion(n - 1) + n;
}

NOINLINE static int variadic(int count, ...) {
    va_list list;
    double sum = 0;
    va_start(list, count);
    while (count--)
        sum += va_arg(list, double);
    va_end(list);
    return leaf((int)sum);
}

/* Saves registers only on the way that needs them. */
NOINLINE static int shrink_wrapped(int n) {
    if (__builtin_expect(n == 0, 1))
        return 7;
    int a = leaf(n), b = leaf(a);
    return leaf(b) + a * b;
}

static jmp_buf back;

NOINLINE static void jumps(int n) {
    if (leaf(n) >= 0)
        longjmp(back, 1);
}

NOINLINE static int jumped(int n) {
    if (setjmp(back) == 0)
        jumps(n);
    return leaf(n);
}

static int compare(const void *a, const void *b) {
    return leaf(*(const int *)a) - leaf(*(const int *)b);
}

NOINLINE static int through_libc(int n) {
    int numbers[4] = {n, 1, 4, 2};
    char text[64], copy[64];
    qsort(numbers, 4, sizeof *numbers, compare);
    snprintf(text, sizeof text, "%d %5.2f %s", numbers[0], 2.5, "text");
    memcpy(copy, text, sizeof copy);
    return numbers[0] + (int)strlen(copy) + (int)strtol("123", 0, 10);
}

NOINLINE static int through_plt(int n) {
    return far_away(n) + far_away(n + 1) + far_back(leaf, n);
}

#ifdef WITH_RUST
int rust_routine(int n);
#endif

NOINLINE int routines(void) {
    int n = sink + 5;
    int result = leaf(n) + many_registers(n) + with_alloca(n) + realigned(n) + big_frame(n) + tail_call(n) + recursion(n);
    result += variadic(3, 1.0, 2.0, 3.0) + shrink_wrapped(0) + shrink_wrapped(n) + jumped(n) + through_plt(n);
    result += through_libc(n);
#ifdef WITH_RUST
    result += rust_routine(n);
#endif
    return result;
}
