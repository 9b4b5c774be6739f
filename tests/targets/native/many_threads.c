/* argv[1] threads that exist at the same time. With argv[2], none of them runs before all are made: the main thread keeps the one
   processor that they have, by a real-time policy that they do not inherit. Exit code 3: a thread could not be made; 4: the policy could
   not be set. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_made = PTHREAD_COND_INITIALIZER, one_more = PTHREAD_COND_INITIALIZER;
static int is_over, begun;

static void *wait_for_the_end(void *unused) {
    pthread_mutex_lock(&mutex);
    begun++;
    pthread_cond_signal(&one_more);
    while (!is_over)
        pthread_cond_wait(&all_made, &mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static int keep_the_processor(pthread_attr_t *attributes) {
    struct sched_param first = {.sched_priority = 1}, ordinary = {0};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    return sched_setaffinity(0, sizeof one, &one) == 0 && sched_setscheduler(0, SCHED_FIFO, &first) == 0 &&
           pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED) == 0 &&
           pthread_attr_setschedpolicy(attributes, SCHED_OTHER) == 0 && pthread_attr_setschedparam(attributes, &ordinary) == 0;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 131072);
    if (argc > 2 && !keep_the_processor(&attributes))
        return 4;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, wait_for_the_end, NULL) != 0)
            return 3;
    pthread_mutex_lock(&mutex);
    /* One that begins when others have ended would find room. */
    while (begun < count)
        pthread_cond_wait(&one_more, &mutex);
    is_over = 1;
    pthread_cond_broadcast(&all_made);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
