/* A plugin raises a signal in the middle of uu_walk(), and then faults. The program's handler of that signal, on top of the
   walk, faults in three ways: each time the program's handler of faults must see it, and the plugin's own fault must still
   be contained. With an argument, the signal's handler runs on an alternate stack. Prints "ok". */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
static sigjmp_buf out;
static volatile sig_atomic_t raised, seen;
static void *volatile nothing;

static void on_fault(int signal) {
    (void)signal;
    seen++;
    siglongjmp(out, 1);
}

static void on_signal(int signal) {
    (void)signal;
    if (sigsetjmp(out, 1))
        return;
    char copy[4096];
    switch (++raised) {
    case 1: *(volatile int *)nothing = 1; break;
    case 2: memcpy(copy, nothing, sizeof copy); break;
    default: ((void (*)(void))nothing)(); break;
    }
    __asm__ volatile("" : : "r"(copy) : "memory");
}

int main(int argc, char **argv) {
    (void)argv;
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = argc > 1 ? SA_ONSTACK : 0};
    CHECK(!sigaltstack(&stack, 0) && !sigaction(SIGUSR1, &action, 0));
    signal(SIGSEGV, on_fault);
    CHECK(uu_setup() > 1 && uu_handle_faults() == 0);
    uint64_t frames[64], captured[64];
    /* It is called for each frame of the program, main and its caller, until it is off after the third failure. */
    for (int turn = 0; turn < 4; turn++) {
        struct uu_request request;
        memset(&request, 0, sizeof request);
        request.size = sizeof request, request.frames = frames, request.capacity = 64;
        size_t words = uu_capture(captured, 64, 0, 0);
        CHECK(uu_walk(&request) == 0 && request.stop == UU_STOP_COMPLETE && request.doubt == UU_DOUBT_FRAMES);
        CHECK(request.words == words && memcmp(frames + 2, captured + 2, (words - 2) * 8) == 0);
        CHECK(seen == raised);
    }
    CHECK(raised == 3);
    puts("ok");
    return 0;
}
