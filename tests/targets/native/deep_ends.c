/* Threads that end soon after a sample of a deep stack: their last ticks are skipped. */
#include <pthread.h>
#include <time.h>

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noinline, noipa)) static int deep(int n) {
    if (n == 0) {
        while (thread_seconds() < 0.04)
            ;
        return 1;
    }
    volatile int depth = deep(n - 1);
    return depth + 1;
}

static void *thread(void *unused) {
    return deep(200000) > 0 ? NULL : unused;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 20);
    for (int i = 0; i < 10; i++) {
        pthread_t one;
        if (pthread_create(&one, &attributes, thread, NULL) != 0)
            return 9;
        pthread_join(one, NULL);
    }
    return 0;
}
