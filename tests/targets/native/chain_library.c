/* A library whose frames have sizes known only at run time, saved registers, and no frame pointer where the compiler can do without. */

int chain_inner(int n, int (*callback)(int)) {
    volatile int local[8];
    for (int i = 0; i < 8; i++)
        local[i] = n + i;
    return callback(local[n & 7]) + local[(n + 1) & 7];
}

int chain_varied(int n, int (*callback)(int)) {
    volatile char pad[n + 1];
    pad[n] = (char)n;
    return chain_inner(n, callback) + pad[n];
}

int chain_outer(int a, int b, int c, int (*callback)(int)) {
    int x = chain_varied(a + b, callback);
    int y = chain_varied(b + c, callback);
    return x * a + y * b + c;
}
