/* grows - allocates and frees before, between and after two moments, each of which lies between two calls of `mark`.
 *
 *     grows RECORDING [differs]
 *
 * With a second argument, it allocates the same, and keeps other parts of it. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void *volatile old[100], *volatile new[50], *volatile late[10];
static char *mapped;

__attribute__((noinline)) void mark(void) {
    void *volatile at = malloc(1);
    free(at);
}

__attribute__((noinline)) void before(void) {
    for (int i = 0; i < 100; i++)
        old[i] = malloc(1000);
}

__attribute__((noinline)) void between(void) {
    for (int i = 0; i < 50; i++)
        new[i] = malloc(2000);
    for (int i = 0; i < 30; i++) {
        void *volatile at = malloc(500);
        free(at);
    }
    for (int i = 0; i < 10; i++)
        free(old[i]);
    mapped = mmap(0, 100 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(mapped, 60 << 12);
}

__attribute__((noinline)) void after(int differs) {
    for (int i = 0; i < 20 && !differs; i++)
        free(new[i]);
    for (int i = 10; i < 100 && differs; i++)
        free(old[i]);
    if (!differs)
        munmap(mapped + (60 << 12), 30 << 12);
    for (int i = 0; i < 10; i++)
        late[i] = malloc(3000);
}

int main(int argc, char **argv) {
    /* What comes before the recording's first bytes may have times before its beginning. */
    struct stat recording;
    while (argc < 2 || stat(argv[1], &recording) || !recording.st_size)
        poll(0, 0, 1);
    before();
    mark(), mark();
    between();
    mark(), mark();
    after(argc > 2);
    return 0;
}
