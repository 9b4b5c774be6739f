/* Children that are forked while other threads capture: what the library keeps of those threads is copied at any instruction. A child captures
   itself, and its new threads get the control blocks of the threads that it does not have.

   Usage: forked CHILDREN. Prints how many children there were, their captures, and how many stacks were wrong. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "shadow.h"

enum { THREADS = 3, STACK = 1 << 18 };

static volatile int over, is_child;
static struct shadow own, shadows[THREADS];
static pthread_attr_t attributes[THREADS];

/* In the parent until the end; in a child for a moment, with the same stacks in the same places. */
static void *capture(void *which) {
    struct shadow *s = &shadows[(size_t)which];
    for (int left = 12; !over && left; left -= is_child)
        shadow_run(s, 0);
    return 0;
}

static void start(pthread_t *threads) {
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &attributes[i], capture, (void *)i))
            _exit(9);
}

int main(int count, char **arguments) {
    const long children = count > 1 ? atol(arguments[1]) : 100;
    pthread_t threads[THREADS], others[THREADS];
    long *sums = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), failed = 0;
    for (int i = 0; i < THREADS; i++) {
        void *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_attr_init(&attributes[i]);
        pthread_attr_setstack(&attributes[i], stack, STACK);
        shadows[i].seed = (unsigned)i;
    }
    if (uu_handle_faults())
        return 2;
    start(threads);
    for (long child = 0; child < children; child++) {
        int status = 0;
        const int pid = fork();
        if (pid == 0) {
            is_child = 1;
            for (int i = 0; i < THREADS; i++)
                shadows[i].captures = shadows[i].wrong = 0;
            own.captures = own.wrong = 0;
            for (int i = 0; i < 10; i++)
                shadow_run(&own, 0);
            start(others);
            for (int i = 0; i < THREADS; i++) {
                pthread_join(others[i], 0);
                sums[0] += shadows[i].captures, sums[1] += shadows[i].wrong;
            }
            sums[0] += own.captures, sums[1] += own.wrong;
            _exit(0);
        }
        shadow_run(&own, 0);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 3;
        failed += status != 0;
    }
    over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    long wrong = own.wrong;
    for (int i = 0; i < THREADS; i++)
        wrong += shadows[i].wrong;
    printf("children %ld failed %ld captures %ld wrong %ld in the parent %ld\n", children, failed, sums[0], sums[1], wrong);
    return 0;
}
