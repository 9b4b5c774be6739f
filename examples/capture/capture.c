/* A program that prints its own stack from inside a signal handler, as a crash reporter would.
 *
 *     cc -O2 -Itarget/uu/include -o capture examples/capture/capture.c -Ltarget/uu/lib -luunwind -Wl,-rpath,target/uu/lib
 *     ./capture
 *
 * Names come from dladdr here, which may lock: a real reporter writes the addresses, and names them later.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <uu.h>

static uint64_t frames[256];
static size_t count;
static uint16_t stop;

static void handler(int number, siginfo_t *info, void *ucontext) {
    (void)number, (void)info;
    /* Async-signal-safe. The first frame is the interrupted one. */
    count = uu_capture(frames, sizeof frames / sizeof *frames, ucontext, &stop);
}

__attribute__((noinline)) static int sum(int n) {
    if (n == 0)
        return raise(SIGUSR1);
    return sum(n - 1) + n;
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &action, 0);
    printf("sum %d\n", sum(3));
    for (size_t i = 0; i < count; i++) {
        uint64_t address = UU_FRAME_ADDRESS(frames[i]);
        /* A return address follows its call. */
        uint64_t looked_up = frames[i] & UU_FRAME_EXACT ? address : address - 1;
        Dl_info where;
        const char *object = dladdr((void *)(uintptr_t)looked_up, &where) && where.dli_fname ? where.dli_fname : "?";
        printf("frame %zu %s %#llx%s\n", i, object, (unsigned long long)address, frames[i] & UU_FRAME_EXACT ? " exact" : "");
    }
    printf("stop %d\n", stop);
    return stop == UU_STOP_COMPLETE ? 0 : 1;
}
