/* watchdog - a program that says where it is stuck. Its work beats; a thread that watches prints the whole stack of the one
 * that works whenever no beat came for a while, and ends the program when that has happened three times in a row.
 *
 *     cc -O2 -g -pthread -Itarget/uu/include -o watchdog examples/watchdog/watchdog.c -Ltarget/uu/lib -luunwind -Wl,-rpath,target/uu/lib
 *     ./watchdog
 *
 * The stack is taken by a signal (uu_walk_thread): the stuck thread needs to do nothing for it, and goes on afterwards as
 * if nothing had been. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uu.h>

static atomic_uint beats;
static int replies[2]; /* a pipe into which nothing is written */

__attribute__((noinline)) static int waits_for_reply(int job) {
    char reply = 0;
    return read(replies[0], &reply, 1) == 1 ? reply + job : -1;
}

__attribute__((noinline)) static int work(int jobs) {
    int done = 0;
    for (int job = 0; job < jobs; job++) {
        beats++;
        done += job < 3 ? job : waits_for_reply(job);
    }
    return done;
}

static void print_stack(uint32_t thread) {
    uint64_t frames[1024];
    struct uu_request walk = {.size = sizeof walk, .frames = frames, .capacity = 1024};
    int error = uu_walk_thread(thread, &walk, 1000000000);
    if (error) { /* its stop says more: the signal is blocked, the thread is in the kernel */
        printf("    no stack: %s (stop %u)\n", strerror(-error), walk.stop);
        return;
    }
    const struct uu_symbol *symbols = 0;
    if (uu_symbolize(frames, walk.words, &symbols) < 0)
        printf("    %u frames without names\n", walk.count);
    for (const struct uu_symbol *s = symbols; s; s = s->next)
        printf("    %s (%s:%u)\n", *s->function ? s->function : s->object, s->file, s->line);
    uu_symbols_free(symbols);
}

static void *watch(void *thread) {
    unsigned last = 0, missed = 0;
    while (missed < 3) {
        usleep(200000);
        unsigned now = beats;
        missed = now == last ? missed + 1 : 0;
        last = now;
        if (missed) {
            printf("no beat since number %u:\n", now);
            print_stack(*(uint32_t *)thread);
        }
    }
    fflush(stdout);
    _Exit(0); /* a program in earnest would begin again */
}

int main(int argc, char **argv) {
    uint32_t thread = (uint32_t)gettid();
    pthread_t watcher;
    if (pipe(replies) || uu_setup() < 0 || pthread_create(&watcher, 0, watch, &thread))
        return 2;
    return work(argc > 1 ? atoi(argv[1]) : 10);
}
