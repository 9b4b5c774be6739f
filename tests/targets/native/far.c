/* A shared object whose functions are called through the PLT, and which calls through its own. */
#include <stdlib.h>

int far_away(int n) {
    return abs(n - 100) + abs(n);
}

int far_back(int (*back)(int), int n) {
    return back(n) + back(n + 1);
}
