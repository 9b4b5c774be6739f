/* A small client, for what else may be in its process: sanitizers, other allocators. Threads come, walk in the open and in a
   handler, give ids, are walked by others, and end, while one opens and closes a library, and another forks. Argument: the
   library. */
#define _GNU_SOURCE
#include "uu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is_so)                                                                                                  \
    do {                                                                                                              \
        if (!(is_so)) {                                                                                               \
            fprintf(stderr, "line %d: %s\n", __LINE__, #is_so);                                                       \
            abort();                                                                                                  \
        }                                                                                                             \
    } while (0)
#define MOST 256

static atomic_long walks;
static const char *library;
static int with_context; /* 0: the handler may run later than the signal (ThreadSanitizer's runtime) */

static void walk(const void *ucontext) {
    uint64_t frames[MOST];
    uint16_t stop = 0;
    struct uu_request request = {.size = sizeof request, .ucontext = ucontext, .frames = frames, .capacity = MOST};
    CHECK(uu_walk(&request) == 0);
    if (request.stop == UU_STOP_FAULT)
        return; /* it has interrupted another one */
    CHECK(request.count > 1 && request.words < MOST);
    const uint32_t id = uu_stack_id(frames, request.words);
    CHECK(id && uu_stack_frames(id, NULL, 0) == request.words);
    CHECK(uu_capture(frames, MOST, ucontext, &stop) > 1);
    walks++;
}

static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    walk(with_context ? ucontext : NULL);
}

static void *worker(void *unused) {
    for (int i = 0; i < 20; i++) {
        void *memory = malloc((size_t)(100 + i * 1000));
        CHECK(memory);
        walk(NULL);
        pthread_kill(pthread_self(), SIGUSR1);
        free(memory);
    }
    return unused;
}

static void *opens(void *unused) {
    for (int i = 0; i < 30; i++) {
        void *handle = dlopen(library, RTLD_NOW);
        int (*first)(int (*)(void)) = handle ? (int (*)(int (*)(void)))dlsym(handle, "first") : NULL;
        CHECK(first);
        CHECK(first(getpid) > 0);
        if (i % 10 == 0)
            CHECK(uu_setup() > 0);
        walk(NULL);
        dlclose(handle);
    }
    return unused;
}

static void *waits(void *gate) {
    CHECK(read(((int *)gate)[0], &(char){0}, 1) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    library = argv[1], with_context = atoi(argv[2]);
    CHECK(uu_setup() > 0);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < 5; round++) {
        pthread_t threads[6];
        for (int i = 0; i < 6; i++)
            CHECK(pthread_create(&threads[i], NULL, i ? worker : opens, NULL) == 0);
        for (int i = 0; i < 6; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        const pid_t child = fork();
        if (child == 0) {
            walk(NULL);
            _exit(uu_setup() > 0 ? 7 : 8);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    /* A thread that waits in the kernel is walked where it is. */
    int gate[2];
    pthread_t thread;
    CHECK(pipe(gate) == 0 && pthread_create(&thread, NULL, waits, gate) == 0);
    static uint64_t frames[8 * MOST];
    static struct uu_thread all[8];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 8 * MOST};
    CHECK(uu_walk_all(&request, all, 8, 1000 * 1000 * 1000) >= 2);
    CHECK(all[0].error == 0 && all[0].count > 1);
    close(gate[1]);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(walks > 5 * 5 * 20);
    puts("ok");
    return 0;
}
