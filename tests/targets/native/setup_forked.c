/* Forks while other threads hold the dynamic loader's lock nearly all the time, and are in the middle of loading: children
   set up and symbolize. Prints "ok". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uu.h>

static int holds(struct dl_phdr_info *info, size_t size, void *unused) {
    for (volatile int i = 0; i < 20000; i++)
        ;
    (void)info, (void)size, (void)unused;
    return 0;
}

static void *lists(void *unused) {
    for (;;)
        dl_iterate_phdr(holds, unused);
}

static void *loads(void *unused) {
    for (;;) {
        void *object = dlopen("libresolv.so.2", RTLD_NOW);
        if (object)
            dlclose(object);
    }
    return unused;
}

static int works(void) {
    uint64_t frames[8];
    uint16_t stop;
    const struct uu_symbol *symbols;
    size_t found = uu_capture(frames, 8, NULL, &stop);
    return uu_setup() >= 0 && uu_symbolize(frames, found, &symbols) > 0;
}

int main(void) {
    pthread_t thread;
    if (!works())
        return 1;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, NULL, lists, NULL);
    pthread_create(&thread, NULL, loads, NULL);
    for (int i = 0; i < 24; i++) {
        usleep(3000);
        pid_t child = fork();
        if (!child) {
            alarm(30);
            _exit(works() ? 0 : 2);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) {
            printf("child %d ended with status %#x\n", i, status);
            return 1;
        }
    }
    puts("ok");
    return 0;
}
