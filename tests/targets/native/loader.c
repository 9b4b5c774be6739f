/* What the dynamic loader can do with an object, one way a mode. digits.h puts on the stack which object is at work.
   Usage: loader MODE FOLDER */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <iconv.h>
#include <nss.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "digits.h"

static const char *mode, *folder;
static void *places[4];

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    const char *why = dlerror();
    fprintf(stderr, "%s: %s\n", what, why ? why : "");
    exit(3);
}

/* Calls the library's function for a while. */
static unsigned call(void *handle, int number, double seconds) {
    unsigned (*enter)(unsigned) = (unsigned (*)(unsigned))dlsym(handle, "enter");
    unsigned sum = 0;
    if (!enter)
        fail("dlsym");
    places[number & 3] = (void *)enter;
    for (double end = cpu() + seconds; cpu() < end;)
        sum += enter((unsigned)number);
    return sum;
}

static const char *path_of(int number) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/lib%04d.so", folder, number);
    return path;
}

static unsigned opened(int number, int flags, double seconds) {
    void *handle = dlopen(path_of(number), RTLD_NOW | flags);
    if (!handle)
        fail("dlopen");
    unsigned sum = call(handle, number, seconds);
    if (dlclose(handle))
        fail("dlclose");
    return sum;
}

static unsigned in_own_namespace(int number) {
    void *handle = dlmopen(LM_ID_NEWLM, path_of(number), RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail("dlmopen");
    unsigned sum = call(handle, number, 0.3);
    dlclose(handle);
    return sum;
}

/* The library's last act is a jump to dlclose: there is no way back into it. */
static unsigned closes_itself(int number) {
    void *handle = dlopen(path_of(number), RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail("dlopen");
    unsigned sum = call(handle, number, 0.01);
    int (*leave)(int (*)(void *), void *) = (int (*)(int (*)(void *), void *))dlsym(handle, "leave");
    if (leave(dlclose, handle) || dlopen(path_of(number), RTLD_NOW | RTLD_NOLOAD))
        fail("the library did not close itself");
    return sum;
}

/* Written into a memory file, which has no name in any folder. */
static unsigned from_memory(int number, int keep) {
    char text[64];
    static char bytes[1 << 20];
    int from = open(path_of(number), O_RDONLY), to = memfd_create("loader", MFD_CLOEXEC);
    ssize_t size = read(from, bytes, sizeof bytes);
    if (size <= 0 || write(to, bytes, (size_t)size) != size)
        fail("memfd");
    close(from);
    snprintf(text, sizeof text, "/proc/self/fd/%d", to);
    void *handle = dlopen(text, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail("dlopen of a memfd");
    if (!keep)
        close(to);
    unsigned sum = call(handle, number, 0.5);
    dlclose(handle);
    if (keep)
        close(to);
    return sum;
}

static unsigned called_back(unsigned n) {
    for (double end = cpu() + 0.001; cpu() < end;)
        n = n * 1664525u + 1013904223u;
    return n;
}

/* Code that no object covers. 1: it keeps a frame pointer; 2: it does not. */
static unsigned raw_code(int number) {
    static const unsigned char with[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    static const unsigned char without[] = {0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x18, 0xc3};
    int file = memfd_create("code", MFD_CLOEXEC);
    if (ftruncate(file, 4096) || pwrite(file, number == 1 ? with : without, number == 1 ? sizeof with : sizeof without, 0) < 0)
        fail("memfd");
    void *code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    close(file);
    unsigned (*run)(unsigned (*)(unsigned), unsigned) = (unsigned (*)(unsigned (*)(unsigned), unsigned))code;
    unsigned sum = 0;
    for (double end = cpu() + 0.5; cpu() < end;)
        sum += run(called_back, (unsigned)number);
    munmap(code, 4096);
    return sum;
}

/* libc loads a module for each character set, and unloads it again. */
static unsigned converted(int number) {
    static const char *const sets[] = {"ISO-8859-7", "KOI8-R", "CP1255", "ISO-8859-9"};
    static char in[20000], out[80000];
    unsigned sum = 0;
    memset(in, 'a', sizeof in);
    for (double end = cpu() + 0.05; cpu() < end;) {
        iconv_t conversion = iconv_open("UTF-32", sets[number]);
        if (conversion == (iconv_t)-1)
            fail("iconv_open");
        char *from = in, *to = out;
        size_t left = sizeof in, room = sizeof out;
        sum += iconv(conversion, &from, &left, &to, &room) == (size_t)-1;
        iconv_close(conversion);
    }
    return sum + 1;
}

static unsigned looked_up(int number) {
    unsigned sum = 0;
    __nss_configure_lookup("passwd", "compat");
    for (double end = cpu() + 0.5; cpu() < end;)
        for (int i = 0; i < 100; i++)
            sum += getpwnam("root") != 0;
    return sum + (unsigned)number;
}

static unsigned one_way(int number) {
    if (strcmp(mode, "swap") == 0 || strcmp(mode, "early") == 0)
        return opened(number, RTLD_LOCAL, 0.02);
    if (strcmp(mode, "global") == 0)
        return opened(number, RTLD_GLOBAL, 0.3);
    if (strcmp(mode, "local") == 0)
        return opened(number, RTLD_LOCAL, 0.3);
    if (strcmp(mode, "nodelete") == 0)
        return opened(number, RTLD_LOCAL | RTLD_NODELETE, 0.1);
    if (strcmp(mode, "namespace") == 0)
        return in_own_namespace(number);
    if (strcmp(mode, "itself") == 0)
        return closes_itself(number);
    if (strcmp(mode, "memory") == 0)
        return from_memory(number, 1);
    if (strcmp(mode, "closed-memory") == 0)
        return from_memory(number, 0);
    if (strcmp(mode, "code") == 0)
        return raw_code(number);
    if (strcmp(mode, "iconv") == 0)
        return converted(number);
    return looked_up(number);
}

__attribute__((noinline)) static unsigned visit(int number) {
    return one_way(number) + 1;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    mode = argv[1];
    folder = argv[2];
    int swap = strcmp(mode, "swap") == 0, repeated = swap || strcmp(mode, "itself") == 0 || strcmp(mode, "iconv") == 0;
    if (strcmp(mode, "early") == 0) {
        /* Opened by the constructor of a library that the program needs: closed now, and another one comes there. */
        void (*close_early)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "close_early");
        if (!close_early)
            fail("dlsym");
        places[1] = ((void *(*)(void))dlsym(RTLD_DEFAULT, "early_place"))();
        close_early();
        for (int i = 0; i < 20; i++)
            digit(2, 0);
        printf("same place %d of 1\n", places[1] == places[2]);
        return 0;
    }
    int same = 0, rounds = repeated ? 40 : 1;
    for (int i = 0; i < rounds; i++) {
        digit(1, 0);
        digit(2, 0);
        same += places[1] == places[2];
    }
    printf("same place %d of %d\n", same, rounds);
    return 0;
}
