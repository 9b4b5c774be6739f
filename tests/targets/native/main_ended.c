/* A program whose main thread ends while two others go on: one spins in known functions, one waits for a line. It writes
   "ready" when the main thread has ended and the other one spins. Any line ends it with 0; with an argument, it ends by
   itself when the spinner has used this number of milliseconds of CPU time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static long milliseconds;
static _Atomic int spinning;

static long used(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

KEPT static void spins(void) {
    volatile unsigned long turns = 0;
    spinning = 1;
    while (!milliseconds || used() < milliseconds)
        for (int i = 0; i < 100000; i++)
            turns++;
}

KEPT static void *in_loop(void *unused) {
    spins();
    exit(0);
    return unused;
}

/* The main thread is a zombie once it has ended. */
static int main_has_ended(void) {
    char text[512] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file || !fgets(text, sizeof text, file))
        return 0;
    fclose(file);
    char *name_end = strrchr(text, ')');
    return name_end && name_end[2] == 'Z';
}

KEPT static void waits(void) {
    char line[16];
    /* Said in here: whoever reads it may look at once. */
    puts("ready");
    fflush(stdout);
    if (read(0, line, sizeof line) < 0)
        _exit(1);
    /* Without a line: its input has ended. */
    while (milliseconds)
        pause();
}

KEPT static void *in_wait(void *unused) {
    while (!main_has_ended() || !spinning)
        usleep(1000);
    waits();
    exit(0);
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count > 1)
        milliseconds = atol(arguments[1]);
    pthread_create(&thread, 0, in_loop, 0);
    pthread_setname_np(thread, "spinner");
    pthread_create(&thread, 0, in_wait, 0);
    pthread_exit(0);
}
