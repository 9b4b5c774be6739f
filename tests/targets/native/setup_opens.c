/* uu_setup(), and how many files were opened by open64(3) for it: those of the objects that it reads. What the loader, and
   the cache, opens is not counted. */
#define _GNU_SOURCE
#include "uu.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static int opened;

int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    opened++;
    return openat(AT_FDCWD, path, flags, mode);
}

int main(void) {
    const int made = uu_setup();
    uint64_t frames[64];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64};
    const int walked = uu_walk(&request);
    printf("tables %d, walk %d, stop %d, doubt %d\n%d\n", made, walked, request.stop, request.doubt, opened);
    return 0;
}
