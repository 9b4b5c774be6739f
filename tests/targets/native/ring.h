/* The ring that this thread's samples go to: nothing is lost if its reader, who looks at it now and then, is waited for. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Bytes that may wait in the ring, which has room for twice as many. */
#define RING_ROOM 65536

static volatile uint64_t *ring_written, *ring_consumed;

/* $UU_TEST_RING: where in the session's memory the blocks' states and the blocks begin, number and bytes of blocks, the state of a
   thread's, and in that the offsets of tid, written and consumed. */
static void find_ring(void) {
    const char *layout = getenv("UU_TEST_RING");
    unsigned long states, first, count, block, thread, tid, head, tail;
    char line[512];
    if (!layout)
        return;
    if (sscanf(layout, "%lu %lu %lu %lu %lu %lu %lu %lu", &states, &first, &count, &block, &thread, &tid, &head, &tail) != 8)
        abort();
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        char *start = strstr(line, "memfd:uu-session") ? (char *)strtoul(line, 0, 16) : 0;
        for (unsigned long i = 0; start && i < count && !ring_written; i++) {
            char *at = start + first + i * block;
            if (((uint32_t *)(start + states))[i] == thread && *(uint32_t *)(at + tid) == (uint32_t)syscall(SYS_gettid)) {
                ring_written = (uint64_t *)(at + head);
                ring_consumed = (uint64_t *)(at + tail);
            }
        }
    }
    fclose(maps);
}

/* Returns when there is room for more samples. Uses no CPU time meanwhile, so there is no tick. */
static void wait_for_room(void) {
    struct timespec pause = {.tv_nsec = 500000};
    while (ring_written && *ring_written - *ring_consumed > RING_ROOM)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, 0);
}
