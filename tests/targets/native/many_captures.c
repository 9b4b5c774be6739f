/* Captures of more threads than the library keeps slots for at first, while all are alive; and of threads one after the other, of which each has
   a thread control block of its own, more than there can ever be slots. Each stack is compared with backtrace(3)'s.

   Usage: many_captures LIVE GONE. Prints how many threads there were, how many stacks were wrong, and how much memory the library has
   mapped meanwhile, in KiB. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <uu.h>

enum { ROOM = 64, CAPTURES = 3, LINE = 64, STACK = 64 * 1024 };

static pthread_barrier_t alive;
static _Atomic int wrong;

__attribute__((noinline)) static void capture(void) {
    uint64_t frames[ROOM];
    void *truth[ROOM];
    uint16_t stop = 0;
    const size_t count = uu_capture(frames, ROOM, 0, &stop), wanted = (size_t)backtrace(truth, ROOM);
    int differ = stop != UU_STOP_COMPLETE || count != wanted;
    /* The first one's two addresses are those of two calls. */
    for (size_t i = 1; i < count && !differ; i++)
        differ = UU_FRAME_ADDRESS(frames[i]) != (uint64_t)truth[i];
    if (differ && !wrong++) {
        printf("%zu words, stop %d, of %zu\n", count, stop, wanted);
        fflush(stdout);
    }
}

static void *together(void *argument) {
    for (int i = 0; i < CAPTURES; i++) {
        capture();
        pthread_barrier_wait(&alive);
    }
    return argument;
}

static void *alone(void *argument) {
    capture();
    return argument;
}

/* Bytes of anonymous memory without a name, in KiB. */
static long mapped(void) {
    char line[512], mode[8];
    unsigned long start, end, kib = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        exit(3);
    while (fgets(line, sizeof line, maps)) {
        int read = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %n", &start, &end, mode, &read) == 3 && line[read] == 0)
            kib += (end - start) / 1024;
    }
    fclose(maps);
    return (long)kib;
}

int main(int count, char **arguments) {
    const size_t live = count > 1 ? strtoul(arguments[1], 0, 10) : 5000, gone = count > 2 ? strtoul(arguments[2], 0, 10) : 100000;
    pthread_t *threads = calloc(live + 1, sizeof *threads);
    char *stacks = mmap(0, STACK + gone * LINE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pthread_attr_t attributes;
    capture();
    pthread_attr_init(&attributes);
    if (live) {
        pthread_attr_setstacksize(&attributes, STACK);
        pthread_barrier_init(&alive, 0, (unsigned)live);
        for (size_t i = 0; i < live; i++)
            if (pthread_create(&threads[i], &attributes, together, 0))
                return 2;
        for (size_t i = 0; i < live; i++)
            pthread_join(threads[i], 0);
    }
    const long before = mapped();
    for (size_t i = 0; i < gone; i++)
        if (pthread_attr_setstack(&attributes, stacks + i * LINE, STACK) || pthread_create(threads, &attributes, alone, 0) ||
            pthread_join(*threads, 0))
            return 4;
    printf("live %zu gone %zu wrong %d grown %ld\n", live, gone, wrong, mapped() - before);
    return 0;
}
