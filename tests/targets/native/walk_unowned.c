/* A stack that passes code which no object and no window covers, with a plugin that asks for such code: where the plugin is
   not called, because its faults would be the program's, or because it is off, the result says so, always. Prints "ok". */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
static struct uu_request request;
static uint64_t frames[64];

static int walk(void) {
    memset(&request, 0, sizeof request);
    request.size = sizeof request, request.frames = frames, request.capacity = 64;
    return uu_walk(&request);
}

int main(void) {
    /* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && uu_setup() > 1);
    memcpy(page, code, sizeof code);
    int (*volatile through)(int (*)(void)) = (int (*)(int (*)(void)))page;
    /* Twice each time: the second walk may take over the first one's frames. */
    for (int turn = 0; turn < 2; turn++) {
        CHECK(walk() == 0 && request.doubt == 0 && request.stop == UU_STOP_COMPLETE);
        CHECK(through(walk) == 0 && request.count > 3 && request.doubt == UU_DOUBT_PLUGIN_NOT_CALLED);
    }
    CHECK(uu_handle_faults() == 0);
    /* Three calls fail; from then on it is off. */
    for (int turn = 0; turn < 8; turn++)
        CHECK(through(walk) == 0 && request.count > 3 && request.doubt == UU_DOUBT_FRAMES);
    CHECK(walk() == 0 && request.doubt == 0);
    puts("ok");
    return 0;
}
