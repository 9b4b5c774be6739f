/* Burns argv[2] seconds of CPU in another thread, in its main thread, which waits for a lock of that one before, in a forked
   child, and once more after that child's exec, and allocates there. Each of them first prints what it is, and the links `self` and `thread-self` of the folder argv[1]: in a /proc of
   an outer pid namespace, these have its ids there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *folder;
static double seconds;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t is_held;

/* Until the thread has used that time. */
static inline __attribute__((always_inline)) unsigned burn(void) {
    unsigned n = 1;
    for (int i = 0; i < 64; i++) {
        char *volatile block = malloc(1 << 20);
        n += block != NULL;
        free(block);
    }
    struct timespec t, began;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    do {
        for (int i = 0; i < 20000; i++)
            n = n * 1664525u + 1013904223u;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while ((double)(t.tv_sec - began.tv_sec) + (double)(t.tv_nsec - began.tv_nsec) / 1e9 < seconds);
    return n;
}

static void say(const char *what) {
    char path[300], process[100] = "", thread[100] = "";
    snprintf(path, sizeof path, "%s/self", folder);
    if (readlink(path, process, sizeof process - 1) < 0)
        strcpy(process, "none");
    snprintf(path, sizeof path, "%s/thread-self", folder);
    if (readlink(path, thread, sizeof thread - 1) < 0)
        strcpy(thread, "none");
    printf("%s %s %s own %d\n", what, process, thread, getpid());
    fflush(stdout);
}

__attribute__((noinline)) static unsigned main_work(void) { return burn() | 1; }
__attribute__((noinline)) static unsigned thread_work(void) { return burn() | 1; }
__attribute__((noinline)) static unsigned forked_work(void) { return burn() | 1; }
__attribute__((noinline)) static unsigned executed_work(void) { return burn() | 1; }

static void *in_thread(void *unused) {
    say("thread_work");
    pthread_mutex_lock(&mutex);
    sem_post(&is_held);
    unsigned n = thread_work();
    pthread_mutex_unlock(&mutex);
    return n ? unused : NULL;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    folder = argv[1];
    seconds = atof(argv[2]);
    if (argc > 3) {
        say("executed_work");
        return executed_work() ? 0 : 1;
    }
    say("main_work");
    pthread_t thread;
    sem_init(&is_held, 0, 0);
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0)
        return 1;
    while (sem_wait(&is_held) != 0)
        ;
    pthread_mutex_lock(&mutex);
    unsigned n = main_work();
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
    pid_t child = fork();
    if (child == 0) {
        say("forked_work");
        n += forked_work();
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "again", NULL);
        execv(argv[0], (char *[]){argv[0], argv[1], argv[2], "again", NULL});
        _exit(1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return 1;
    printf("done %d\n", n != 7);
    return 73;
}
