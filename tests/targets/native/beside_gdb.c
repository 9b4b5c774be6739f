/* For Python programs: seen() prints the stack that uu_walk() finds, a line for each frame, and stops there for a
   debugger. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <uu.h>

#define STAYS __attribute__((noinline, noipa, visibility("default")))

STAYS int prepare(void) { return uu_setup(); }

STAYS void through(void (*callback)(void)) {
    callback();
    __asm__ volatile("" ::: "memory");
}

STAYS void seen(void) {
    static uint64_t frames[4096];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 4096};
    if (uu_walk(&request))
        abort();
    printf("stop %u doubt %u\n", request.stop, request.doubt);
    struct uu_frame_info info = {.size = sizeof info};
    for (size_t at = 0; at < request.words;) {
        const int size = uu_describe(frames + at, &info);
        Dl_info symbol = {0};
        if (size < 1)
            abort();
        if (info.kind == UU_FRAME_SEMANTIC)
            printf("python %s\n", info.function);
        else if (dladdr((void *)(info.address - 1), &symbol) && symbol.dli_sname)
            printf("native %#llx %s\n", (unsigned long long)info.address, symbol.dli_sname);
        else
            printf("native %#llx ?\n", (unsigned long long)info.address);
        at += (size_t)size;
    }
    fflush(stdout);
    raise(SIGTRAP);
}
