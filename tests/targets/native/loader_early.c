/* A library that opens another one in its constructor, before the program or any preloaded object has begun. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static void *handle;

__attribute__((constructor)) static void open_early(void) {
    const char *path = getenv("UU_TEST_EARLY");
    handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : 0;
}

void *early_place(void);
void *early_place(void) {
    return handle ? dlsym(handle, "enter") : 0;
}

void close_early(void);
void close_early(void) {
    dlclose(handle);
}
