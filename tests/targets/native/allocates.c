/* A program with four threads that allocate and free all the time, and check what they have written. It writes "ready",
   and ends with 0 after a line on standard input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile int goes_on = 1;

static void *allocates(void *seed_of_thread) {
    unsigned seed = (unsigned)(size_t)seed_of_thread;
    unsigned char *pieces[64] = {0};
    size_t sizes[64] = {0};
    while (goes_on) {
        unsigned which = (unsigned)rand_r(&seed) % 64;
        if (pieces[which] != NULL && (pieces[which][0] != which || pieces[which][sizes[which] - 1] != which))
            abort();
        free(pieces[which]);
        sizes[which] = (size_t)rand_r(&seed) % 4096 + 1;
        pieces[which] = malloc(sizes[which]);
        memset(pieces[which], (int)which, sizes[which]);
    }
    for (unsigned which = 0; which < 64; which++)
        free(pieces[which]);
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    char line[16];
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, allocates, (void *)(i + 1));
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    goes_on = 0;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
