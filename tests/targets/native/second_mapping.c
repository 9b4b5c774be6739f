/* A program that maps its own code a second time, at another address, and runs there: `inner`, called by `outer`. Both
 * reach all that they need by their argument, since nothing else is where it was. Compile without optimization, for frame pointers everywhere.
 *
 * "spin": a thread runs in the second mapping until standard input ends; writes "ready".
 * "burn": the same, until that thread has used half a second; then the program ends.
 * "replace RECORDING": takes explicit samples: one in the second mapping; one in other code, at the address at which
 * `outer` was; one in the second mapping, which is back there. Writes that address. RECORDING is what is being made of it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

struct work {
    volatile int is_over;
    long pid, tid;
};

KEPT static void inner(struct work *work) {
    if (work->pid) {
        long result;
        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(SYS_tgkill), "D"(work->pid), "S"(work->tid), "d"(SIGPROF)
                         : "rcx", "r11", "memory");
        return;
    }
    for (volatile unsigned long turns = 0; !work->is_over; turns++)
        ;
}

KEPT static void outer(struct work *work) {
    inner(work);
    __asm__ volatile("" ::: "memory");
}

static uintptr_t text, length;
static off_t offset;

static void find_own_code(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4352];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, at;
        if (sscanf(line, "%lx-%lx r-xp %lx", &start, &end, &at) == 3 && start <= (uintptr_t)outer && (uintptr_t)outer < end)
            text = start, length = end - start, offset = (off_t)at;
    }
    fclose(maps);
}

/* Maps it again, at this address or anywhere. */
static char *map_again(char *at) {
    int file = open("/proc/self/exe", O_RDONLY);
    char *mapped = mmap(at, length, PROT_READ | PROT_EXEC, MAP_PRIVATE | (at ? MAP_FIXED : 0), file, offset);
    close(file);
    if (mapped == MAP_FAILED)
        abort();
    return mapped;
}

typedef void function(struct work *);

static void *in_thread(void *work) {
    function *second = (function *)(map_again(NULL) + ((uintptr_t)outer - text));
    second(work);
    __asm__ volatile("" ::: "memory");
    return work;
}

static const char *recording;

static off_t written(void) {
    struct stat now;
    if (stat(recording, &now) != 0)
        abort();
    return now.st_size;
}

KEPT static void wait_to_be_seen(struct work *work) {
    struct timespec second = {1, 100000000}, moment = {0, 10000000};
    nanosleep(&second, NULL);
    /* The first is in the file during a pass of the recorder that has begun by now; the second in a later one. */
    for (int i = 0; i < 2; i++) {
        off_t before = written();
        inner(work);
        while (written() == before)
            nanosleep(&moment, NULL);
    }
}

static void replace(void) {
    struct work work = {0, getpid(), syscall(SYS_gettid)};
    char *mapped = map_again(NULL), *place = mapped + ((uintptr_t)outer - text);
    printf("%#lx\n", (unsigned long)place);
    ((function *)place)(&work);
    wait_to_be_seen(&work);
    munmap(mapped, length);
    /* push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret */
    static const unsigned char other[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};
    if (mmap(mapped, length, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != mapped)
        abort();
    memcpy(place, other, sizeof other);
    ((void (*)(struct work *, function *))place)(&work, inner);
    wait_to_be_seen(&work);
    map_again(mapped);
    wait_to_be_seen(&work);
    ((function *)place)(&work);
}

int main(int argc, char **argv) {
    find_own_code();
    if (argc == 3) {
        recording = argv[2];
        replace();
        return 0;
    }
    struct work work = {0, 0, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, &work);
    if (!strcmp(argv[1], "spin")) {
        puts("ready");
        fflush(stdout);
        while (getchar() > 0 && getchar() != '\n')
            ;
    } else {
        clockid_t clock;
        struct timespec used = {0, 0}, moment = {0, 10000000};
        pthread_getcpuclockid(thread, &clock);
        while (used.tv_sec == 0 && used.tv_nsec < 500000000) {
            nanosleep(&moment, NULL);
            clock_gettime(clock, &used);
        }
    }
    work.is_over = 1;
    pthread_join(thread, NULL);
    return 0;
}
