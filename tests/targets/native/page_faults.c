/* Touches new pages for as much CPU time as is asked for: about all of it is in page faults and madvise(2). Writes the
 * CPU time since main began. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((noinline)) static void touches(char *pages, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096)
        ((volatile char *)pages)[at] = 1;
}

int main(int count, char **arguments) {
    double begun = used(), seconds = count > 1 ? atof(arguments[1]) : 0.5;
    size_t bytes = 1 << 20;
    char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || madvise(pages, bytes, MADV_NOHUGEPAGE) != 0)
        return 1;
    while (used() - begun < seconds) {
        touches(pages, bytes);
        if (madvise(pages, bytes, MADV_DONTNEED) != 0)
            return 1;
    }
    printf("%.6f\n", used() - begun);
    return 0;
}
