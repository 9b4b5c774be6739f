/* What jit_rows.c runs as a JIT would: compiled without unwind data and without frame pointers. rbp is one of the
 * registers that it counts in. */
typedef void Work(void);

__attribute__((noinline)) static long leaf(long n, Work *work) {
    char room[200];
    for (long i = 0; i < (long)sizeof room; i++)
        ((volatile char *)room)[i] = (char)n;
    work();
    return room[n & 127];
}

/* A table of jumps, and more values than the other registers hold. */
__attribute__((noinline)) static long choose(long n, Work *work) {
    long a = n * 3, b = n ^ 5, c = n + 7, d = n * n, e = n - 11, f = n << 3;
    switch (n & 7) {
    case 0: a = leaf(a, work) * 2; break;
    case 1: b = leaf(b + 9, work) - 4; break;
    case 2: c = leaf(c, work) ^ 77; break;
    case 3: d = leaf(d * 5, work) + f; break;
    case 4: e = leaf(e + a, work) | 1; break;
    case 5: f = leaf(f - b, work) & 3; break;
    case 6: a = leaf(e, work) + leaf(b, work); break;
    default: work(); break;
    }
    return a + b + c + d + e + f;
}

__attribute__((noinline)) long jit_entry(long n, Work *work) {
    long room[n + 1], sum = 0;
    for (long i = 0; i <= n; i++)
        ((volatile long *)room)[i] = choose(i, work);
    for (long i = 0; i <= n; i++)
        sum += room[i];
    return sum;
}
