/* main -> through -> honest (a library) -> leaf, which takes an explicit sample. */
#include <signal.h>

int honest(int (*callee)(int), int n);
#ifdef LIAR
void lie(void);
#endif

__attribute__((noipa)) static int leaf(int n) {
    raise(SIGPROF);
    return n + 1;
}

__attribute__((noipa)) static int through(int n) {
    volatile int room[8] = {0};
    return honest(leaf, n) + room[n & 7];
}

int main(void) {
#ifdef LIAR
    lie();
#endif
    return through(0) == 2 ? 0 : 1;
}
