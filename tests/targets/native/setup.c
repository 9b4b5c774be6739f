/* Captures its own stack before and after uu_setup(), in functions whose unwind information cannot be read in place: linked
   without an index of .eh_frame, or with .debug_frame only. The chain is known. */
#include "uu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOST 64
#define DEPTH 12
#define NOINLINE __attribute__((noinline, noclone))

static void *chain[DEPTH + 1];
static int chained;

/* Whether the capture begins with the known chain, and is complete. */
NOINLINE static int known(void) {
    uint64_t frames[MOST];
    uint16_t stop = 0;
    size_t count = uu_capture(frames, MOST, NULL, &stop);
    if (stop != UU_STOP_COMPLETE || count < (size_t)chained + 2)
        return 0;
    for (int i = 0; i < chained; i++)
        if (UU_FRAME_ADDRESS(frames[i + 2]) != (uint64_t)(uintptr_t)chain[chained - 1 - i])
            return 0;
    return 1;
}

/* Saves a register or two, in a frame of a size of its own: frame pointers lead nowhere. */
NOINLINE static int down(int n, int *room_of_caller) {
    int room[17];
    int answer;
    memset(room, n, sizeof room);
    chain[chained++] = __builtin_return_address(0);
    answer = n == 0 ? known() : down(n - 1, room);
    chained--;
    return answer + 0 * (room[n & 15] + room_of_caller[0]);
}

static int whole(void) {
    int room[1] = {0};
    return down(DEPTH - 1, room);
}

int main(void) {
    int before = whole();
    errno = 77;
    int made = uu_setup();
    int error = errno;
    printf("before %d\nerrno %d\n", before, error);
    printf("made %s\n", made >= 2 ? "tables" : "too few");
    printf("again %s\n", uu_setup() == made ? "the same" : "another number");
    printf("after %d\n", whole());
    return 0;
}
