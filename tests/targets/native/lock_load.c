/* lock_load - threads change numbers under locks of each kind, threads and children come and go, until a line comes or its
 * input ends. Prints "ready", and at the end "wrong NUMBER": numbers that do not fit together, calls that failed, children
 * that did not end as they should. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4 };

static atomic_int over;
static atomic_ulong wrong;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static long first, second, third, fourth, turns;

static void must(int failed) { wrong += failed != 0; }

static void *work(void *which) {
    for (long round = (long)which; !over; round++) {
        must(pthread_mutex_lock(&mutex));
        wrong += first != second;
        first++;
        second++;
        must(pthread_mutex_unlock(&mutex));
        if (round % 4) {
            must(pthread_rwlock_rdlock(&rwlock));
            wrong += third != fourth;
        } else {
            must(pthread_rwlock_wrlock(&rwlock));
            third++;
            fourth++;
        }
        must(pthread_rwlock_unlock(&rwlock));
        must(sem_wait(&semaphore));
        must(sem_post(&semaphore));
    }
    return NULL;
}

/* Two threads take turns. */
static void *alternate(void *which) {
    must(pthread_mutex_lock(&turn));
    while (!over) {
        while (turns % 2 != (long)which && !over)
            must(pthread_cond_wait(&changed, &turn));
        turns++;
        must(pthread_cond_broadcast(&changed));
    }
    must(pthread_cond_broadcast(&changed));
    must(pthread_mutex_unlock(&turn));
    return NULL;
}

static void *one(void *none) {
    must(pthread_mutex_lock(&mutex));
    must(pthread_mutex_unlock(&mutex));
    return none;
}

static void *come_and_go(void *none) {
    while (!over) {
        pthread_t thread;
        if (pthread_create(&thread, 0, one, 0))
            wrong++;
        else
            must(pthread_join(thread, 0));
    }
    return none;
}

static void *fork_children(void *none) {
    while (!over) {
        pid_t child = fork();
        if (!child) {
            pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
            int failed = 0;
            for (int i = 0; i < 100; i++)
                failed |= pthread_mutex_lock(&own) | pthread_mutex_unlock(&own);
            _exit(failed ? 1 : 7);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            wrong++;
    }
    return none;
}

int main(void) {
    pthread_t threads[WORKERS + 4];
    sem_init(&semaphore, 0, 1);
    for (long i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    pthread_create(&threads[WORKERS], 0, alternate, (void *)0);
    pthread_create(&threads[WORKERS + 1], 0, alternate, (void *)1);
    pthread_create(&threads[WORKERS + 2], 0, come_and_go, 0);
    pthread_create(&threads[WORKERS + 3], 0, fork_children, 0);
    puts("ready");
    fflush(stdout);
    getchar();
    over = 1;
    for (int i = 0; i < WORKERS + 4; i++)
        must(pthread_join(threads[i], 0));
    printf("wrong %lu\n", (unsigned long)(wrong + (first != second) + (third != fourth)));
    return 0;
}
