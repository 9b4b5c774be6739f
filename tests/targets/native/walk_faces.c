/* A program that a misbehaving plugin claims walks its stack six times by uu_walk(), in a process in which nothing else
   handles faults: every stack is as uu_capture()'s, and the first ones say that frames may be missing. Then a fault of the
   program's own reaches its handler. Prints "ok". */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
static sigjmp_buf out;
static void handler(int signal) { (void)signal; siglongjmp(out, 1); }

int main(int argc, char **argv) {
    signal(SIGSEGV, handler);
    CHECK(uu_setup() > 1);
    /* Without a handler, a plugin that may fault is not called. */
    uint64_t frames[64], captured[64];
    struct uu_request request;
    for (int turn = 0; turn < 7; turn++) {
        memset(&request, 0, sizeof request);
        request.size = sizeof request, request.frames = frames, request.capacity = 64;
        size_t words = uu_capture(captured, 64, 0, 0);
        CHECK(uu_walk(&request) == 0 && request.stop == UU_STOP_COMPLETE);
        CHECK(request.words == words && memcmp(frames + 2, captured + 2, (words - 2) * 8) == 0);
        if (turn == 0) {
            CHECK(request.doubt == (UU_DOUBT_FRAMES | UU_DOUBT_PLUGIN_NOT_CALLED));
            CHECK(uu_handle_faults() == 0);
        } else
            CHECK(request.doubt == UU_DOUBT_FRAMES);
    }
    if (!sigsetjmp(out, 1)) {
        *(volatile int *)(argc > 5 ? (void *)argv : (void *)8) = 1;
        return 3;
    }
    puts("ok");
    return 0;
}
