/* libuunwind on AArch64: captures in plain calls and in a signal handler, along chains of every kind of frame, against glibc's backtrace().
 * Prints what differs, and ends with 1 then. */
#define _GNU_SOURCE
#include "chain.c"
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <uu.h>

#define ROOM 256

static int wrong, compared, deepest;

/* `theirs` begins with inner frames that `ours` lacks; the first frame of `ours` must be among its frames. */
static void check(const char *what, const uint64_t *ours, size_t count, uint16_t stop, void *const *theirs, int many) {
    int from = 0;
    while (from < many && (uint64_t)theirs[from] != UU_FRAME_ADDRESS(ours[0]))
        from++;
    int same = count > 0 && (int)count == many - from && stop == UU_STOP_COMPLETE;
    for (size_t i = 0; same && i < count; i++)
        same = UU_FRAME_ADDRESS(ours[i]) == (uint64_t)theirs[from + i];
    compared++;
    deepest = (int)count > deepest ? (int)count : deepest;
    if (same)
        return;
    wrong++;
    printf("%s: stop %d, %zu frames against %d\n", what, stop, count, many - from);
    for (size_t i = 0; i < count || (int)i < many - from; i++)
        printf("  %#12lx %12p\n", i < count ? UU_FRAME_ADDRESS(ours[i]) : 0, (int)i < many - from ? theirs[from + i] : 0);
}

static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    uint64_t ours[ROOM];
    void *theirs[ROOM];
    uint16_t stop;
    size_t count = uu_capture(ours, ROOM, ucontext, &stop);
    check("signal", ours, count, stop, theirs, backtrace(theirs, ROOM));
}

static void in_a_signal(void) {
    raise(SIGUSR1);
}

static void in_a_call(void) {
    uint64_t ours[ROOM];
    void *theirs[ROOM];
    uint16_t stop;
    /* The first frame is this one, at another place than backtrace() has: the callers are compared. */
    size_t count = uu_capture(ours, ROOM, NULL, &stop);
    int many = backtrace(theirs, ROOM);
    check("call", ours + 1, count - (count > 0), stop, theirs, many);
}

int main(int argc, char **argv) {
    (void)argv;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    if (argc > 1)
        uu_handle_faults();
    for (unsigned seed = 0; seed < 40; seed++) {
        chain(seed % 30, seed * 2654435769u, in_a_signal);
        chain(seed % 30, seed * 2654435769u, in_a_call);
    }
    printf("%d captures of up to %d frames, %d wrong\n", compared, deepest, wrong);
    return wrong != 0 || compared != 80;
}
