/* Two kinds of work, each for as much CPU time as is asked for: `spins` in user mode, `reads` in read(2) of /dev/zero.
 * Arguments: seconds of each, number of threads. Writes the CPU time of all threads since main began. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double seconds;

static double used(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((noinline)) static void spins(void) {
    double until = used(CLOCK_THREAD_CPUTIME_ID) + seconds;
    volatile unsigned long sum = 0;
    while (used(CLOCK_THREAD_CPUTIME_ID) < until)
        for (int i = 0; i < 1000000; i++)
            sum += (unsigned long)i;
}

__attribute__((noinline)) static void reads(void) {
    static char buffer[1 << 18];
    int zero = open("/dev/zero", O_RDONLY);
    double until = used(CLOCK_THREAD_CPUTIME_ID) + seconds;
    while (used(CLOCK_THREAD_CPUTIME_ID) < until)
        for (int i = 0; i < 16; i++)
            if (read(zero, buffer, sizeof buffer) != sizeof buffer)
                exit(1);
    close(zero);
}

static void *work(void *argument) {
    spins();
    reads();
    return argument;
}

int main(int count, char **arguments) {
    double begun = used(CLOCK_PROCESS_CPUTIME_ID);
    seconds = count > 1 ? atof(arguments[1]) : 0.5;
    int threads = count > 2 ? atoi(arguments[2]) : 1;
    pthread_t more[64];
    for (int i = 1; i < threads; i++)
        pthread_create(&more[i], NULL, work, NULL);
    work(NULL);
    for (int i = 1; i < threads; i++)
        pthread_join(more[i], NULL);
    printf("%.6f\n", used(CLOCK_PROCESS_CPUTIME_ID) - begun);
    return 0;
}
