/* What a caller may expect of dlopen and related functions; prints the same with and without the profiler. Built three times, at -O0,
   so that every call is a call: -DPRIVATE the library that only the caller's RUNPATH leads to, -DCALLER the library that has
   that RUNPATH, and the program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(PRIVATE)

int private_value(void);
int private_value(void) {
    return 42;
}

#elif defined(CALLER)

void *caller_open(const char *name);
void *caller_open(const char *name) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return handle;
}

/* Found after this object in the search order, even if another object defines it, too. */
void *caller_next(const char *name);
void *caller_next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    return found;
}

#else

void *caller_open(const char *name);
void *caller_next(const char *name);

static void result(const char *what, void *got) {
    const char *why = dlerror();
    printf("%s: %s, %s\n", what, got ? "there" : "not there", why ? why : "no error");
}

int main(int argc, char **argv) {
    (void)argc;
    char *why = dlerror();
    printf("before: %s\n", why ? why : "no error");
    result("by the program", dlopen("libprivate.so", RTLD_NOW));
    void *handle = caller_open("libprivate.so");
    result("by the library", handle);
    if (!handle)
        return 1;
    int (*value)(void) = (int (*)(void))dlsym(handle, "private_value");
    printf("value %d\n", value());
    result("not global", dlsym(RTLD_DEFAULT, "private_value"));
    result("no such symbol", dlsym(handle, "no_such_symbol"));
    result("not an object", dlopen(argv[1], RTLD_NOW));
    result("bad flags", dlopen("libprivate.so", 0));
    result("not loaded", dlopen("libm.so.6", RTLD_NOW | RTLD_NOLOAD));
    result("again", caller_open("libprivate.so"));
    printf("closed %d %d\n", dlclose(handle), dlclose(handle));
    result("gone", dlopen("libprivate.so", RTLD_NOW | RTLD_NOLOAD));
    result("next", caller_next("strlen"));
    printf("the program itself %d\n", dlsym(dlopen(0, RTLD_NOW), "main") == (void *)main);
    void *other = dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
    result("another namespace", other);
    Lmid_t namespace = LM_ID_BASE;
    printf("its number %d, %d\n", dlinfo(other, RTLD_DI_LMID, &namespace), namespace != LM_ID_BASE);
    /* Its own libc, with functions of its own. */
    void *libc = dlmopen(namespace, "libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    printf("own sigaction %d\n", libc && dlsym(libc, "sigaction") != dlsym(RTLD_DEFAULT, "sigaction"));
    Dl_info info;
    printf("whose %d\n", dladdr((void *)caller_open, &info) && strstr(info.dli_fname, "libcaller.so") != 0);
    volatile unsigned n = 1;
    for (int i = 0; i < 30000000; i++)
        n = n * 1664525u + 1u;
    return 0;
}

#endif
