/* One thread prepares the process while another one is in a constructor that does the same, and so has the loader's lock.
   Built twice: with -DCONSTRUCTOR as that object, whose path is the program's argument. Prints "ok". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uu.h>

#ifdef CONSTRUCTOR
extern void in_constructor(void);
__attribute__((constructor)) static void prepares(void) { in_constructor(); }
#else
static const char *object;
static atomic_int begun, results;
static pthread_t other;

void in_constructor(void) {
    begun = 1;
    results += uu_setup() > 3;
}

static void *opens(void *unused) {
    return dlopen(object, RTLD_NOW), unused;
}

/* Called by uu_setup(), for the first plugin that it opens: by then it has whatever lock it takes before that. */
void *dlopen(const char *path, int flags) {
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    if (path && strstr(path, "plugins/") && !other) {
        pthread_create(&other, 0, opens, 0);
        while (!begun)
            usleep(1000);
    }
    return real(path, flags);
}

int main(int argc, char **argv) {
    alarm(60);
    object = argv[argc - 1];
    results += uu_setup() > 3;
    pthread_join(other, 0);
    puts(results == 2 ? "ok" : "not prepared");
    return 0;
}
#endif
