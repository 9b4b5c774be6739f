/* A signal storm: four threads at work - malloc, locks, dl_iterate_phdr, dlopen and dlclose, iconv - while a fifth sends
   each of them the sampling signal, 10,000 a second in all. The threads check their own results.
   Usage: storm CPU_SECONDS SIGNALS_PER_SECOND OBJECT; 0 signals a second to see the result without a storm. It lasts until
   the process has used CPU_SECONDS: a signal arrives when its thread runs, so that on a busy machine a storm by the
   clock would be a breeze. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <iconv.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 4

static volatile int stop;
static long tids[WORKERS];
static unsigned results[WORKERS];
static const char *object_path;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long shared_count;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int each_object(struct dl_phdr_info *info, size_t size, void *data) {
    *(unsigned *)data += info->dlpi_phnum > 0 && size > 0;
    return 0;
}

static unsigned allocate(void) {
    unsigned sum = 0;
    char *blocks[64];
    for (int i = 0; i < 64; i++) {
        size_t size = 16u + (unsigned)i * 97u % 3000u;
        blocks[i] = malloc(size);
        memset(blocks[i], i, size);
    }
    for (int i = 0; i < 64; i++) {
        sum = sum * 31 + (unsigned char)blocks[i][5];
        free(blocks[i]);
    }
    return sum;
}

static unsigned convert(void) {
    char in[] = "plain text", out[64], *from = in, *to = out;
    size_t left = strlen(in), room = sizeof out;
    iconv_t conversion = iconv_open("UTF-16LE", "ISO-8859-15");
    if (conversion == (iconv_t)-1)
        return 0;
    iconv(conversion, &from, &left, &to, &room);
    iconv_close(conversion);
    return (unsigned)(sizeof out - room);
}

static unsigned call_object(void) {
    void *object = dlopen(object_path, RTLD_NOW);
    int (*far_away)(int) = object ? (int (*)(int))dlsym(object, "far_away") : 0;
    unsigned result = far_away ? (unsigned)far_away(30) : 0;
    if (object)
        dlclose(object);
    return result;
}

static unsigned unit(void) {
    unsigned objects = 0, sum = 0;
    for (int i = 0; i < 20; i++)
        sum = sum * 33 + allocate();
    pthread_mutex_lock(&lock);
    shared_count++;
    pthread_mutex_unlock(&lock);
    dl_iterate_phdr(each_object, &objects);
    return sum * 33 + call_object() * 7 + convert() + (objects > 0);
}

static void *work(void *argument) {
    long me = (long)argument;
    unsigned first = unit();
    __atomic_store_n(&tids[me], syscall(SYS_gettid), __ATOMIC_RELEASE);
    while (!stop)
        if (unit() != first) {
            fprintf(stderr, "storm: a result changed\n");
            _exit(3);
        }
    results[me] = first;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    double seconds = atof(argv[1]), rate = atof(argv[2]);
    object_path = argv[3];
    pthread_t threads[WORKERS];
    for (long i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < WORKERS; i++)
        while (!__atomic_load_n(&tids[i], __ATOMIC_ACQUIRE))
            usleep(100);
    long sent = 0, pid = getpid();
    double begin = now(CLOCK_MONOTONIC), end = now(CLOCK_PROCESS_CPUTIME_ID) + seconds;
    while (now(CLOCK_PROCESS_CPUTIME_ID) < end) {
        /* As many as are due by now: the pauses of the kernel are too coarse for one at a time. */
        for (long due = (long)((now(CLOCK_MONOTONIC) - begin) * rate); sent < due; sent++)
            syscall(SYS_tgkill, pid, __atomic_load_n(&tids[sent % WORKERS], __ATOMIC_RELAXED), SIGPROF);
        usleep(50);
    }
    stop = 1;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], 0);
    printf("results %u %u %u %u\n", results[0], results[1], results[2], results[3]);
    fprintf(stderr, "storm: %ld signals sent in %.1f s, %lu units done\n", sent, now(CLOCK_MONOTONIC) - begin, shared_count);
    return 0;
}
