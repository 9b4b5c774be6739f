/* Waits for locks, and says for each kind how often, and how long at least and at most (ns): at most by a clock around
 * the call, at least from when the thread was seen to sleep until the lock was given. By the first argument:
 *
 * each      each kind of lock, ROUNDS times.
 * free      locks that nobody has, of each kind of mutex, and what their functions return.
 * cancelled threads that are cancelled while they wait, with what their cleanup handlers find.
 * attached  what lines of its input say, after a line "ready"; without threads that are cancelled, if it is compiled with
 *           UNCANCELLED: then nothing calls pthread_cancel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 20

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int sleeps(int tid) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    size_t len = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[len] = 0;
    char *end = strrchr(line, ')');
    return end != NULL && end[1] != 0 && end[2] == 'S';
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, of_condition = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static pthread_barrier_t barrier;
static int is_set;
static atomic_int waiter, begins, word;
static atomic_long at_least, at_most;
static struct timespec far;

/* What the waiting thread runs: each its own function, so that the stack says what was waited for. */
__attribute__((noinline)) static void for_mutex(void) { pthread_mutex_lock(&mutex); }
__attribute__((noinline)) static void for_mutex_a_while(void) { pthread_mutex_timedlock(&mutex, &far); }
__attribute__((noinline)) static void for_read(void) { pthread_rwlock_rdlock(&rwlock); }
__attribute__((noinline)) static void for_write(void) { pthread_rwlock_wrlock(&rwlock); }
__attribute__((noinline)) static void for_semaphore(void) { sem_wait(&semaphore); }
__attribute__((noinline)) static void for_barrier(void) { pthread_barrier_wait(&barrier); }
__attribute__((noinline)) static void for_futex(void) {
    while (atomic_load(&word))
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL);
}
__attribute__((noinline)) static void for_condition(void) {
    while (!is_set)
        pthread_cond_wait(&condition, &of_condition);
}

static void take_mutex(void) { pthread_mutex_lock(&mutex); }
static void give_mutex(void) { pthread_mutex_unlock(&mutex); }
static void take_write(void) { pthread_rwlock_wrlock(&rwlock); }
static void give_rwlock(void) { pthread_rwlock_unlock(&rwlock); }
static void take_word(void) { atomic_store(&word, 1); }
static void give_word(void) {
    atomic_store(&word, 0);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
}
static void nothing(void) {}
static void give_semaphore(void) { sem_post(&semaphore); }
static void give_barrier(void) { pthread_barrier_wait(&barrier); }
static void lock_condition(void) { pthread_mutex_lock(&of_condition); is_set = 0; }
static void unlock_condition(void) { pthread_mutex_unlock(&of_condition); }
static void give_condition(void) {
    pthread_mutex_lock(&of_condition);
    is_set = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&of_condition);
}

struct kind {
    const char *name;
    void (*take)(void);    /* by the holder, before the other one waits */
    void (*before)(void);  /* by the one that waits */
    void (*wait)(void);
    void (*after)(void);
    void (*give)(void); /* by the holder */
};

static const struct kind kinds[] = {
    {"for_mutex", take_mutex, nothing, for_mutex, give_mutex, give_mutex},
    {"for_mutex_a_while", take_mutex, nothing, for_mutex_a_while, give_mutex, give_mutex},
    {"for_read", take_write, nothing, for_read, give_rwlock, give_rwlock},
    {"for_write", take_write, nothing, for_write, give_rwlock, give_rwlock},
    {"for_semaphore", nothing, nothing, for_semaphore, nothing, give_semaphore},
    {"for_barrier", nothing, nothing, for_barrier, nothing, give_barrier},
    {"for_futex", take_word, nothing, for_futex, nothing, give_word},
    {"for_condition", nothing, lock_condition, for_condition, unlock_condition, give_condition},
};

static void *waits(void *argument) {
    const struct kind *kind = argument;
    int tid = (int)syscall(SYS_gettid);
    kind->before();
    /* From here on it sleeps nowhere else. */
    long begin = now();
    atomic_store(&waiter, tid);
    kind->wait();
    at_most += now() - begin;
    kind->after();
    return NULL;
}

static void each(void) {
    printf("holder %d\n", (int)syscall(SYS_gettid));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        at_least = at_most = 0;
        for (int round = 0; round < ROUNDS; round++) {
            pthread_t thread;
            atomic_store(&waiter, 0);
            kinds[i].take();
            pthread_create(&thread, NULL, waits, (void *)&kinds[i]);
            while (!atomic_load(&waiter) || !sleeps(atomic_load(&waiter)))
                sched_yield();
            long seen = now();
            usleep(2000);
            at_least += now() - seen;
            kinds[i].give();
            pthread_join(thread, NULL);
        }
        printf("%s %d %ld %ld\n", kinds[i].name, ROUNDS, (long)at_least, (long)at_most);
    }
}

static void free_ones(void) {
    const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                         PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int type = 0; type < 4; type++)
        for (int robust = 0; robust < 2; robust++)
            for (int inherit = 0; inherit < 2; inherit++) {
                pthread_mutexattr_t attributes;
                pthread_mutex_t one;
                struct timespec soon;
                memset(&one, 0, sizeof one);
                pthread_mutexattr_init(&attributes);
                pthread_mutexattr_settype(&attributes, types[type]);
                if (robust)
                    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
                if (inherit)
                    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
                pthread_mutex_init(&one, &attributes);
                printf("mutex %d %d %d: lock %d", type, robust, inherit, pthread_mutex_lock(&one));
                clock_gettime(CLOCK_REALTIME, &soon);
                errno = 7;
                /* A normal one would wait for itself for ever. */
                printf(" again %d", pthread_mutex_timedlock(&one, &soon));
                if (types[type] == PTHREAD_MUTEX_ERRORCHECK)
                    printf(" itself %d", pthread_mutex_lock(&one));
                printf(" errno %d unlock %d", errno, pthread_mutex_unlock(&one));
                if (types[type] == PTHREAD_MUTEX_RECURSIVE)
                    printf(" %d", pthread_mutex_unlock(&one));
                printf(" not-owned %d\n", types[type] == PTHREAD_MUTEX_ERRORCHECK ? pthread_mutex_unlock(&one) : 0);
            }
    struct timespec past = {1, 0};
    sem_t one;
    sem_init(&one, 0, 1);
    printf("semaphore %d", sem_wait(&one));
    errno = 0;
    printf(" %d", sem_timedwait(&one, &past));
    printf(" errno %d\n", errno);
    printf("condition %d\n",
           (pthread_mutex_lock(&of_condition), pthread_cond_timedwait(&condition, &of_condition, &past)));
    pthread_mutex_unlock(&of_condition);
    printf("rwlock %d", pthread_rwlock_rdlock(&rwlock));
    printf(" %d", pthread_rwlock_rdlock(&rwlock));
    printf(" %d\n", pthread_rwlock_timedwrlock(&rwlock, &past));
    mtx_t c11;
    mtx_init(&c11, mtx_timed);
    printf("c11 %d", mtx_lock(&c11));
    printf(" %d\n", mtx_timedlock(&c11, &past));
}

static pthread_mutex_t robust;
static void *dies_with_it(void *unused) { pthread_mutex_lock(&robust); return unused; }

static void owner_died(void) {
    pthread_mutexattr_t attributes;
    pthread_t thread;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_create(&thread, NULL, dies_with_it, NULL);
    pthread_join(thread, NULL);
    printf("owner died: %d", pthread_mutex_lock(&robust) == EOWNERDEAD);
    printf(" unlock %d", pthread_mutex_unlock(&robust));
    printf(" not recoverable: %d\n", pthread_mutex_lock(&robust) == ENOTRECOVERABLE);
}

#ifndef UNCANCELLED
static const char *cleaned;
static void on_cleanup(void *what) {
    cleaned = what;
    /* A cancelled wait for a condition has taken its mutex again. */
    if (!strcmp(what, "condition"))
        pthread_mutex_unlock(&of_condition);
}
static void *in_wait(void *what) {
    pthread_cleanup_push(on_cleanup, what);
    if (!strcmp(what, "condition")) {
        pthread_mutex_lock(&of_condition);
        atomic_store(&begins, (int)syscall(SYS_gettid));
        for (;;)
            pthread_cond_wait(&condition, &of_condition);
    } else if (!strcmp(what, "semaphore")) {
        atomic_store(&begins, (int)syscall(SYS_gettid));
        for (;;)
            sem_wait(&semaphore);
    } else if (!strcmp(what, "pending")) {
        /* It acts on a cancellation although it need not wait. */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        atomic_store(&begins, (int)syscall(SYS_gettid));
        pause();
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        sem_wait(&semaphore);
        cleaned = "not cancelled";
    } else {
        pthread_t self = pthread_self(), other;
        (void)self;
        pthread_create(&other, NULL, (void *(*)(void *))pause, NULL);
        atomic_store(&begins, (int)syscall(SYS_gettid));
        pthread_join(other, NULL);
    }
    pthread_cleanup_pop(0);
    return NULL;
}
static void wakes(int unused) { (void)unused; }

static void cancelled(void) {
    const char *all[] = {"condition", "semaphore", "end", "pending"};
    struct sigaction action = {.sa_handler = wakes};
    sigaction(SIGUSR1, &action, NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pthread_t thread;
        void *result;
        cleaned = "nothing";
        atomic_store(&begins, 0);
        if (!strcmp(all[i], "pending"))
            sem_post(&semaphore);
        pthread_create(&thread, NULL, in_wait, (void *)all[i]);
        while (!atomic_load(&begins) || !sleeps(atomic_load(&begins)))
            sched_yield();
        pthread_cancel(thread);
        pthread_kill(thread, SIGUSR1);
        pthread_join(thread, &result);
        printf("%s: cancelled %d, cleaned %s, mutex free %d\n", all[i], result == PTHREAD_CANCELED, cleaned,
               pthread_mutex_trylock(&of_condition) == 0);
        pthread_mutex_unlock(&of_condition);
    }
}

#else
static void cancelled(void) {}
#endif

/* Ends of waits that need nobody else, and what the seventh argument of syscall() does: a set of bits is none. */
static void ends(void) {
    struct timespec soon = {0, 2000000}, late;
    atomic_store(&word, 1);
    errno = 0;
    printf("futex %ld", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &soon, NULL, 0));
    printf(" %d", errno == ETIMEDOUT);
    printf(" %ld", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    printf(" %d", errno == EAGAIN);
    clock_gettime(CLOCK_MONOTONIC, &late);
    late.tv_nsec += 2000000;
    late.tv_sec += late.tv_nsec / 1000000000;
    late.tv_nsec %= 1000000000;
    printf(" %ld", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 1, &late, NULL, FUTEX_BITSET_MATCH_ANY));
    printf(" %d", errno == ETIMEDOUT);
    printf(" %ld", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 1, &late, NULL, 0));
    printf(" %d", errno == EINVAL);
    printf(" pid %d", syscall(SYS_getpid) == getpid());
    void *page = (void *)syscall(SYS_mmap, NULL, 4096L, (long)(PROT_READ | PROT_WRITE),
                                 (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
    printf(" mapped %d\n", page != MAP_FAILED && munmap(page, 4096) == 0);
    atomic_store(&word, 0);
}

static void forked(void);

static void attached(void) {
    char line[64];
    pthread_t held;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "each\n"))
            each();
        if (!strcmp(line, "hold\n")) {
            atomic_store(&waiter, 0);
            take_mutex();
            pthread_create(&held, NULL, waits, (void *)&kinds[0]);
            while (!atomic_load(&waiter) || !sleeps(atomic_load(&waiter)))
                sched_yield();
        }
        if (!strcmp(line, "give\n")) {
            give_mutex();
            pthread_join(held, NULL);
        }
        if (!strcmp(line, "all\n")) {
            free_ones();
            owner_died();
            cancelled();
            ends();
            forked();
        }
        puts("done");
    }
}

/* The child of a fork, which is recorded, waits for locks, too. */
static void forked(void) {
    fflush(stdout);
    int child = fork();
    if (child == 0) {
        pthread_t thread;
        atomic_store(&waiter, 0);
        take_mutex();
        pthread_create(&thread, NULL, waits, (void *)&kinds[0]);
        while (!atomic_load(&waiter) || !sleeps(atomic_load(&waiter)))
            sched_yield();
        give_mutex();
        pthread_join(thread, NULL);
        printf("forked 1\n");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "each";
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    clock_gettime(CLOCK_REALTIME, &far);
    far.tv_sec += 1000000;
    if (!strcmp(what, "each"))
        each();
    if (!strcmp(what, "fork"))
        forked();
    if (!strcmp(what, "attached"))
        attached();
    if (strcmp(what, "each") && strcmp(what, "fork") && strcmp(what, "attached")) {
        free_ones();
        owner_died();
        cancelled();
        forked();
    }
    return 0;
}
