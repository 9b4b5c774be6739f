// lock_cancels - a thread that waits for a condition is cancelled, for each line of its input: the destructors on its stack
// run. Prints "ready", and then "destroyed NUMBER" after each line.
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static bool is_there;
static int destroyed;

struct Guard {
    Guard() { pthread_mutex_lock(&mutex); }
    ~Guard() {
        destroyed++;
        pthread_mutex_unlock(&mutex);
    }
};

static void *waits(void *none) {
    Guard guard;
    is_there = true;
    for (;;)
        pthread_cond_wait(&condition, &mutex);
    return none;
}

int main() {
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        pthread_t thread;
        is_there = false;
        pthread_create(&thread, NULL, waits, NULL);
        // Once the mutex can be taken, the thread waits.
        for (bool there = false; !there;) {
            pthread_mutex_lock(&mutex);
            there = is_there;
            pthread_mutex_unlock(&mutex);
        }
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        printf("destroyed %d\n", destroyed);
    }
    return 0;
}
