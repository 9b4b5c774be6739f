/* Locks all memory, mapped and to come or what argv[1] says (1 current, 2 future, 4 on fault), then starts argv[2] threads,
   which burn for argv[3] seconds of CPU each, maps 1 MiB, and prints what it got: "locked ERROR", "later ERROR", and in kB
   "VmLck N". */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double seconds;

__attribute__((noinline)) static unsigned work(void) {
    unsigned n = 1;
    struct timespec t;
    do {
        for (int i = 0; i < 20000; i++)
            n = n * 1664525u + 1013904223u;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < seconds);
    return n;
}

static void *in_thread(void *unused) { return work() ? unused : NULL; }

static void show(const char *field) {
    char line[200];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, field, strlen(field)) == 0)
            printf("%s %ld\n", field, atol(line + strlen(field) + 1));
    if (status)
        fclose(status);
}

int main(int argc, char **argv) {
    pthread_t threads[100];
    pthread_attr_t attributes;
    int count = argc > 2 ? atoi(argv[2]) : 0;
    if (argc < 4 || count > 100)
        return 2;
    seconds = atof(argv[3]);
    errno = 0;
    printf("locked %d\n", mlockall(atoi(argv[1])) ? errno : 0);
    show("VmLck:");
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    int started = 0;
    for (; started < count; started++)
        if (pthread_create(&threads[started], &attributes, in_thread, NULL) != 0)
            break;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    printf("threads %d\n", started);
    errno = 0;
    void *more = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("later %d\n", more == MAP_FAILED ? errno : 0);
    return work() ? 0 : 1;
}
