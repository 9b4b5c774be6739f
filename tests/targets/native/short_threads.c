/* argv[1] threads, one after the other, that each compute for half of argv[2] to one and a half microseconds of CPU time. Prints
   the CPU time that they have computed for, in nanoseconds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

__attribute__((noinline)) long long computes(long long length) {
    long long begin = cpu(), now;
    volatile unsigned sum = 0;
    do {
        for (int i = 0; i < 500; i++)
            sum += i;
        now = cpu();
    } while (now - begin < length);
    return now - begin;
}

static void *thread(void *length) {
    *(long long *)length = computes(*(long long *)length);
    return 0;
}

int main(int argc, char **argv) {
    long long total = 0, mean = argc > 2 ? atoll(argv[2]) * 1000 : 1000000;
    srand(1);
    for (int n = atoi(argv[1]); n > 0; n--) {
        long long length = mean / 2 + rand() % mean;
        pthread_t one;
        if (pthread_create(&one, 0, thread, &length) != 0)
            return 3;
        pthread_join(one, 0);
        total += length;
    }
    printf("%lld\n", total);
    return 0;
}
