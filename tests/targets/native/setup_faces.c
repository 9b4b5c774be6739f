/* A program that a plugin claims whose analyse half misbehaves (faces.c): uu_setup() comes back, and a walk is whole
   but for what the plugin would add. Prints the doubt of the walk, before and after a second call. */
#include <stdio.h>
#include <string.h>
#include <uu.h>

int main(void) {
    for (int turn = 0; turn < 2; turn++) {
        if (uu_setup() < 2)
            return 1;
        uint64_t frames[64];
        struct uu_request request;
        memset(&request, 0, sizeof request);
        request.size = sizeof request, request.frames = frames, request.capacity = 64;
        if (uu_walk(&request) != 0 || request.stop != UU_STOP_COMPLETE || request.count < 3)
            return 2;
        printf("doubt %u\n", request.doubt);
    }
    return 0;
}
