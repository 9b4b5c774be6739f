/* A library in the middle of a stack: calls what it is given. */
__attribute__((noinline)) int honest(int (*callee)(int), int n) {
    volatile int room[4] = {n, n + 1, n + 2, n + 3};
    return callee(room[n & 3]) + room[1];
}
