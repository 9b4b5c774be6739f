/* Keeps a block and drops another one, 30 times in 3 s. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 100000 };
static void *kept[30];

__attribute__((noinline)) static void keeps(int turn) {
    kept[turn] = malloc(BLOCK);
    memset(kept[turn], 1, BLOCK);
}

__attribute__((noinline)) static void drops(void) {
    char *volatile block = malloc(BLOCK);
    memset(block, 1, BLOCK);
    free(block);
}

int main(void) {
    for (int turn = 0; turn < 30; turn++) {
        keeps(turn);
        drops();
        usleep(100000);
    }
    return kept[29] == NULL;
}
