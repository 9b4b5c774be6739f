/* cap(), when the thread's ring has room for the sample: so that none of many in a row is lost. */
#include "../native/ring.h"

void cap(void);

__attribute__((noinline)) void cap_with_room(void) {
    if (!ring_written)
        find_ring();
    wait_for_room();
    cap();
    __asm__ volatile("nop");
}
