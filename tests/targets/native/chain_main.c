/* Calls through a library and back, and takes a sample of itself there. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>

int chain_outer(int a, int b, int c, int (*callback)(int));

static int back(int n) {
    raise(SIGPROF);
    return n + 1;
}

int main(void) {
    int sum = 0;
    for (int i = 0; i < 20; i++)
        sum += chain_outer(i, 2, 3, back);
    printf("%d\n", sum);
    return 0;
}
