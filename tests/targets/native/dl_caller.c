/* What a caller may expect of dlopen and its kin; prints the same with and without the profiler. Built three times, at -O0,
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

/* Found behind this object in the search order, whoever else defines it. */
void *caller_next(const char *name);
void *caller_next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    return found;
}

#else

void *caller_open(const char *name);
void *caller_next(const char *name);

static void told(const char *what, void *got) {
    const char *why = dlerror();
    printf("%s: %s, %s\n", what, got ? "there" : "not there", why ? why : "no error");
}

int main(int argc, char **argv) {
    (void)argc;
    char *why = dlerror();
    printf("before: %s\n", why ? why : "no error");
    told("by the program", dlopen("libprivate.so", RTLD_NOW));
    void *handle = caller_open("libprivate.so");
    told("by the library", handle);
    if (!handle)
        return 1;
    int (*value)(void) = (int (*)(void))dlsym(handle, "private_value");
    printf("value %d\n", value());
    told("not global", dlsym(RTLD_DEFAULT, "private_value"));
    told("no such symbol", dlsym(handle, "no_such_symbol"));
    told("not an object", dlopen(argv[1], RTLD_NOW));
    told("bad flags", dlopen("libprivate.so", 0));
    told("not loaded", dlopen("libm.so.6", RTLD_NOW | RTLD_NOLOAD));
    told("again", caller_open("libprivate.so"));
    printf("closed %d %d\n", dlclose(handle), dlclose(handle));
    told("gone", dlopen("libprivate.so", RTLD_NOW | RTLD_NOLOAD));
    told("next", caller_next("strlen"));
    printf("the program itself %d\n", dlsym(dlopen(0, RTLD_NOW), "main") == (void *)main);
    void *other = dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
    told("another namespace", other);
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
