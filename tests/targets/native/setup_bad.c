/* uu_setup() where something is wrong around the process. Argument: "-", or a folder that becomes the root first. Prints what
   uu_setup() returned (1: tables), and whether a walk after it is complete. */
#define _GNU_SOURCE
#include "uu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2 || (strcmp(argv[1], "-") != 0 && (chroot(argv[1]) != 0 || chdir("/") != 0)))
        return 2;
    const int made = uu_setup();
    uint64_t frames[64];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64};
    const int walked = uu_walk(&request);
    printf("setup %d, walk %d, stop %d, frames %d\n", made > 0 ? 1 : made, walked, request.stop, request.count > 1);
    return 0;
}
