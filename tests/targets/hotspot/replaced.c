/* Preloaded: samples each time HotSpot writes down that it replaces a frame of compiled code by frames of the
   interpreter. They are made by then, and hold what was on the stack before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int print(char *to, size_t size, const char *format, va_list words) {
    static int (*real)(char *, size_t, const char *, va_list);
    if (!real)
        real = (int (*)(char *, size_t, const char *, va_list))dlsym(RTLD_NEXT, "vsnprintf");
    if (!strncmp(format, "DEOPT UNPACKING", 15))
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
    return real(to, size, format, words);
}

int vsnprintf(char *to, size_t size, const char *format, va_list words) {
    return print(to, size, format, words);
}

int __vsnprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, va_list words) {
    (void)flag, (void)room;
    return print(to, size, format, words);
}
