/* Four threads give ids to stacks at the same time, in the open and from a timer's handler that interrupts them at any
   instruction. An id's frames must be the stack that it was given for, and a stack must have one id. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <uu.h>

#define STACKS 3000
#define LONGEST 40
static atomic_uint ids[STACKS];
static atomic_long wrong, captures;

/* Stack number n: its words and their number depend on n only. */
static size_t words_of(unsigned n, uint64_t *words) {
    size_t len = 1 + n % LONGEST;
    for (size_t i = 0; i < len; i++)
        words[i] = (uint64_t)UU_FRAME_NATIVE << 56 | (uint64_t)(n / 3 * 4096 + i);
    return len;
}

static void check(unsigned n) {
    uint64_t words[LONGEST], back[LONGEST + 1];
    size_t len = words_of(n, words);
    unsigned id = uu_stack_id(words, len), before = 0;
    if (!id || (!atomic_compare_exchange_strong(&ids[n], &before, id) && before != id))
        atomic_fetch_add(&wrong, 1);
    if (uu_stack_frames(id, back, LONGEST + 1) != len || memcmp(words, back, len * 8) != 0)
        atomic_fetch_add(&wrong, 1);
}

static void on_timer(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    static atomic_uint turn;
    uint64_t frames[256], back[256];
    size_t len = uu_capture(frames, 256, ucontext, 0);
    unsigned id = uu_stack_id(frames, len);
    if (!id || uu_stack_frames(id, back, 256) != len || memcmp(frames, back, len * 8) != 0)
        atomic_fetch_add(&wrong, 1);
    check(atomic_fetch_add(&turn, 7) % STACKS);
    atomic_fetch_add(&captures, 1);
}

static void *run(void *seed) {
    unsigned n = (unsigned)(size_t)seed;
    struct timespec t;
    do {
        for (int i = 0; i < 1000; i++)
            check((n = n * 1103515245 + 12345) / 65536 % STACKS);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec < 1);
    return 0;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, 0);
    struct itimerval timer = {{0, 500}, {0, 500}};
    setitimer(ITIMER_PROF, &timer, 0);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, run, (void *)(i + 1));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_PROF, &timer, 0);

    /* Different stacks have different ids. */
    static unsigned char taken[1 << 20];
    for (unsigned n = 0; n < STACKS; n++) {
        uint64_t one[LONGEST], other[LONGEST];
        check(n);
        unsigned id = ids[n];
        if (id >= sizeof taken)
            wrong++;
        else if (taken[id]++) {
            /* Only its equal may have it. */
            int equals = 0;
            for (unsigned m = n > 3 ? n - 3 : 0; m < n; m++)
                equals += ids[m] == id && words_of(m, one) == words_of(n, other) && !memcmp(one, other, words_of(n, other) * 8);
            wrong += !equals;
        }
    }
    uint64_t word = 1;
    if (uu_stack_id(&word, 0) || uu_stack_id(0, 5) || uu_stack_id(&word, (size_t)1 << 40) || uu_stack_frames(0, &word, 1) ||
        uu_stack_frames(0xffffffffu, &word, 1) || uu_stack_frames(ids[7], 0, 0) != 8 || uu_stack_ids_lost())
        wrong++;
    printf("%ld wrong of %ld captures\n", (long)wrong, (long)captures);
    return wrong != 0 || captures < 100;
}
