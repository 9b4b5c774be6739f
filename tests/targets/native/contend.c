/* Waits for locks by a schedule: four times for a mutex, and twice for a semaphore, each of which is given back a known
   time after the waiter was seen to sleep in the kernel. Prints, of each, the time that must have passed at least and the
   time that the waiter measured, in milliseconds. Many locks without a wait stand between. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t turn;
static sem_t semaphore;
static volatile int waiter;
static double measured;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Until the waiter is in futex(2) for this word; then as long as is scheduled. */
static void hold(const void *word, double milliseconds) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter);
    for (;;) {
        int fd = open(path, O_RDONLY);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        close(fd);
        if (got < 0)
            exit(77); /* the kernel does not say */
        text[got] = 0;
        long number;
        unsigned long first;
        if (sscanf(text, "%ld 0x%lx", &number, &first) == 2 && number == SYS_futex && first - (unsigned long)word < 32)
            break;
        usleep(200);
    }
    for (double until = now() + milliseconds; now() < until;)
        usleep(500);
}

__attribute__((noinline)) static void wants_mutex(void) {
    double start = now();
    pthread_mutex_lock(&mutex);
    measured += now() - start;
    pthread_mutex_unlock(&mutex);
}

__attribute__((noinline)) static void wants_semaphore(void) {
    double start = now();
    sem_wait(&semaphore);
    measured += now() - start;
    __asm__ volatile("");
}

__attribute__((noinline)) static void wants_nothing_long(void) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
}

static void *wait_for_both(void *unused) {
    waiter = (int)syscall(SYS_gettid);
    for (int i = 0; i < 4; i++) {
        pthread_barrier_wait(&turn); /* it is held */
        wants_mutex();
        wants_nothing_long();
        pthread_barrier_wait(&turn);
    }
    printf("mutex %f %f\n", 4 * 40.0, measured);
    measured = 0;
    for (int i = 0; i < 2; i++) {
        pthread_barrier_wait(&turn);
        wants_semaphore();
    }
    printf("semaphore %f %f\n", 2 * 30.0, measured);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_barrier_init(&turn, 0, 2);
    sem_init(&semaphore, 0, 0);
    pthread_create(&thread, 0, wait_for_both, 0);
    for (int i = 0; i < 4; i++) {
        pthread_mutex_lock(&mutex);
        pthread_barrier_wait(&turn);
        hold(&mutex, 40);
        pthread_mutex_unlock(&mutex);
        pthread_barrier_wait(&turn);
    }
    for (int i = 0; i < 2; i++) {
        pthread_barrier_wait(&turn);
        hold(&semaphore, 30);
        sem_post(&semaphore);
    }
    pthread_join(thread, 0);
    return 0;
}
