/* Where a thread publishes its frames: a readable place without frames, an unreadable one, none. Prints the doubt of a stack
 * with marked code for each. */
#include <stdio.h>
#include <uu.h>

static struct uu_frame_record *const none = NULL;

__attribute__((noinline)) static void loop(void) {
    uint64_t frames[64];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64};
    uu_walk(&request);
    printf("%d ", request.doubt & UU_DOUBT_FRAMES);
    __asm__ volatile("");
}

int main(void) {
    if (uu_setup() < 0 || uu_mark_interpreter((void *)loop, 0) || uu_publish_frames(&none))
        return 1;
    loop();
    uu_publish_frames((struct uu_frame_record *const *)8);
    loop();
    uu_publish_frames(NULL);
    loop();
    puts("");
    return 0;
}
