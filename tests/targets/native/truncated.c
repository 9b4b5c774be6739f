/* Captures its stack through a library that it is linked with, makes the library's file as short as its code, and captures
   again, through code that no walk has met: what described it is not there any more. Arguments: the object of
   truncated_lib.c, and the offset at which its code ends. Ends with _exit(): the library's own end could not run. */
#include "uu.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int first(int (*call)(void));
int second(int (*call)(void));
int third(int (*call)(void));

static uint64_t frames[64];
static uint16_t stop;
static size_t count;

static int capture(void) {
    count = uu_capture(frames, 64, NULL, &stop);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int (*const other)(int (*)(void)) = third; /* bound before its table is gone */
    first(capture);
    first(capture); /* rules of code that is met once only are not kept */
    second(capture); /* the first walk reads more of the object, and notes less of what it reads */
    const int before = stop == UU_STOP_COMPLETE;
    if (truncate(argv[1], atol(argv[2])) != 0)
        return 3;
    other(capture);
    printf("before %d, after: frames %d, stop %d\n", before, (int)count, (int)stop);
    first(capture); /* its rules are remembered */
    printf("again %d\n", stop == UU_STOP_COMPLETE);
    fflush(stdout);
    _exit(0);
}
