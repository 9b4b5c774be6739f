/* A library in the middle of a stack: calls what it is given. With HIDDEN, by a function that a stripped library has no
   name for. */
#ifdef HIDDEN
__attribute__((noinline)) static int hidden(int (*callee)(int), int n) {
    volatile int result = callee(n);
    return result;
}
#else
#define hidden(callee, n) callee(n)
#endif

__attribute__((noinline)) int honest(int (*callee)(int), int n) {
    volatile int room[4] = {n, n + 1, n + 2, n + 3};
    return hidden(callee, room[n & 3]) + room[1];
}
