/* Uses uu.h as a program would: captures its own stack, in a function, deep in a recursion, in a signal handler with and
   without the ucontext, in a short buffer, and with unaligned arguments; and compares with libunwind, and with the chain that it knows. */
#define UNW_LOCAL_ONLY
#include "uu.h"

#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 128
#define NOINLINE __attribute__((noinline, noclone))
#define STAY __asm__ volatile("" ::: "memory")

static int agreed;

static void differ(const char *what, size_t index, uint64_t ours, uint64_t theirs) {
    printf("%s: frame %zu is %#lx, libunwind has %#lx\n", what, index, (unsigned long)ours, (unsigned long)theirs);
    exit(1);
}

/* Both begin in this function; its own frame is at another instruction in each. */
NOINLINE static void compare(const char *what) {
    uint64_t ours[MOST];
    void *theirs[MOST];
    uint16_t stop = 0;
    size_t count = uu_capture(ours, MOST, NULL, &stop);
    int expected = unw_backtrace(theirs, MOST);
    if (stop != UU_STOP_COMPLETE || count != (size_t)expected) {
        printf("%s: %zu frames, stop %u; libunwind has %d\n", what, count, stop, expected);
        exit(1);
    }
    for (size_t i = 1; i < count; i++)
        if (UU_FRAME_KIND(ours[i]) != UU_FRAME_NATIVE || UU_FRAME_ADDRESS(ours[i]) != (uint64_t)(uintptr_t)theirs[i])
            differ(what, i, ours[i], (uint64_t)(uintptr_t)theirs[i]);
    agreed++;
    STAY;
}

NOINLINE static void deep(int n) {
    volatile char room[64];
    room[0] = (char)n;
    if (n == 0)
        compare("recursion");
    else
        deep(n - 1);
    room[1] = room[0];
}

static uint64_t interrupted[MOST];
static size_t interrupted_count;
static uint16_t interrupted_stop;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    compare("handler");
    interrupted_count = uu_capture(interrupted, MOST, context, &interrupted_stop);
}

NOINLINE static void in_handler(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    uint64_t here[MOST];
    size_t count = uu_capture(here, MOST, NULL, NULL);
    /* The interrupted stack ends as this one does, but for this function's own frame. */
    if (interrupted_stop != UU_STOP_COMPLETE || !(interrupted[0] & UU_FRAME_EXACT) || interrupted_count <= count)
        exit(2);
    for (size_t i = 1; i < count; i++)
        if (here[count - i] != interrupted[interrupted_count - i])
            differ("ucontext", i, interrupted[interrupted_count - i], here[count - i]);
    agreed++;
}

NOINLINE static void in_short_buffer(void) {
    uint64_t whole[MOST], two[3] = {0, 0, 77};
    uint16_t stop = 0;
    uu_capture(whole, MOST, NULL, NULL);
    if (uu_capture(two, 2, NULL, &stop) != 2 || stop != UU_STOP_BUFFER_FULL || two[1] != whole[1] || two[2] != 77)
        exit(3);
    if (uu_capture(NULL, 0, NULL, &stop) != 0 || stop != UU_STOP_BUFFER_FULL)
        exit(4);
    agreed++;
}

/* Nothing is read or written through addresses that are no multiple of 8, neither by a walk nor once the stack is
 * cached. */
NOINLINE static void with_unaligned_arguments(void) {
    uint64_t frames[MOST + 1];
    for (int i = 0; i < 8; i++) {
        uint16_t stop = 0;
        if (uu_capture(frames, MOST, NULL, &stop) < 2 || stop != UU_STOP_COMPLETE)
            exit(6);
        memset(frames, 0x5a, sizeof frames);
        for (size_t by = 1; by < 8; by++) {
            char *odd = (char *)frames + by;
            if (uu_capture((uint64_t *)(void *)odd, MOST, NULL, &stop) != 0 || stop != UU_STOP_UNALIGNED_ARGUMENT)
                exit(7);
            stop = 0;
            if (uu_capture(frames, MOST, odd, &stop) != 0 || stop != UU_STOP_UNALIGNED_ARGUMENT)
                exit(8);
        }
        for (size_t at = 0; at < sizeof frames; at++)
            if (((unsigned char *)frames)[at] != 0x5a)
                exit(9);
    }
    agreed++;
}

int main(int argc, char **argv) {
    (void)argv;
    if (uu_abi() != UU_ABI)
        return 5;
    compare("main");
    deep(argc + 20);
    in_handler();
    in_short_buffer();
    with_unaligned_arguments();
    if (uu_handle_faults() != 0)
        return 10;
    with_unaligned_arguments();
    printf("%d places agree\n", agreed);
    return 0;
}
