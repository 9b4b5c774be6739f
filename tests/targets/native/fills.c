/* fills NUMBER - allocates this number of large blocks, with the allocator of endless_heap.c, frees all of them, and
 * allocates a thousand that it keeps. */
#include <stdlib.h>

enum { SIZE = 1 << 26, KEPT = 1000 };

int main(int count, char **arguments) {
    long number = count > 1 ? atol(arguments[1]) : 0;
    void **all = calloc(number + KEPT, sizeof *all);
    for (long i = 0; i < number; i++)
        all[i] = malloc(SIZE);
    for (long i = 0; i < number; i++)
        free(all[i]);
    for (long i = 0; i < KEPT; i++)
        all[i] = malloc(SIZE);
    return !all[0];
}
