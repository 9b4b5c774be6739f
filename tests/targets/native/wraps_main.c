/* A library to preload that wraps the program's start, as tools do that run something before and after main. */
#define _GNU_SOURCE
#include <dlfcn.h>

typedef int start_function(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                           void (*)(void), void *);

int __libc_start_main(int (*main)(int, char **, char **), int count, char **words, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void *stack_end) {
    start_function *next = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
    return next(main, count, words, init, fini, loader_fini, stack_end);
}
