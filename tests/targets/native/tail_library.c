/* Calls back, from another object than its caller's. */
__attribute__((noipa)) int tail_library(int n, int (*callback)(int)) {
    return callback(n) + 1;
}
