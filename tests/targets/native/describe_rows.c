/* Calls through a library that nothing describes and back, after uu_setup(). There it describes the frames of its own
 * stack: "<the object's path> code" or "<the object's path> -", a line each, and "end <stop reason>". With `crash`: it
 * crashes there instead. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <uu.h>

int chain_outer(int a, int b, int c, int (*callback)(int));

static int crashes;

static int back(int n) {
    if (crashes)
        raise(SIGSEGV);
    uint64_t frames[64];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64};
    if (uu_walk(&request) < 0)
        return -1;
    for (size_t at = 0; at < request.words;) {
        struct uu_frame_info info = {.size = sizeof info};
        int words = uu_describe(frames + at, &info);
        if (words < 1)
            return -1;
        printf("%s %s\n", info.file, info.flags & UU_INFO_BY_CODE ? "code" : "-");
        at += (size_t)words;
    }
    printf("end %u\n", request.stop);
    return n + 1;
}

int main(int argc, char **argv) {
    crashes = argc > 1 && strcmp(argv[1], "crash") == 0;
    if (!crashes && uu_setup() < 0)
        return 2;
    return chain_outer(1, 2, 3, back) == 0;
}
