/* What each flag of a request does, in a program that a plugin claims which does not say that its reads are checked
   (faces.c, with -DGOOD), and that runs code in a window. Prints "ok". */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
enum { MOST = 256 };

/* Frames by their kinds. */
struct seen {
    unsigned of[8];
    struct uu_request request;
};

__attribute__((noinline, noipa)) static struct seen walk(uint32_t flags) {
    static uint64_t frames[MOST];
    struct seen seen;
    memset(&seen, 0, sizeof seen);
    seen.request.size = sizeof seen.request, seen.request.flags = flags;
    seen.request.frames = frames, seen.request.capacity = MOST;
    CHECK(uu_walk(&seen.request) == 0 && seen.request.stop == UU_STOP_COMPLETE);
    struct uu_frame_info info = {.size = sizeof info};
    for (size_t at = 0; at < seen.request.words;) {
        const int size = uu_describe(frames + at, &info);
        CHECK(size > 0);
        seen.of[info.kind & 7]++;
        CHECK(info.kind != UU_FRAME_SEMANTIC || strcmp(info.function, "good frame") == 0);
        CHECK(info.kind != UU_FRAME_WINDOW || strcmp(info.function, "jitted") == 0);
        at += (size_t)size;
    }
    CHECK(seen.of[UU_FRAME_NATIVE] + seen.of[UU_FRAME_SEMANTIC] + seen.of[UU_FRAME_WINDOW] == seen.request.count);
    return seen;
}

/* Which plugins are called, where nothing contains their faults and where something does. */
static void plugins(void) {
    const uint16_t not_called = UU_DOUBT_FRAMES | UU_DOUBT_PLUGIN_NOT_CALLED;
    struct seen seen = walk(0);
    CHECK(seen.of[UU_FRAME_SEMANTIC] == 0 && seen.request.doubt == not_called);
    seen = walk(UU_WALK_TRUST_PLUGINS);
    CHECK(seen.of[UU_FRAME_SEMANTIC] > 0 && seen.request.doubt == 0);
    const unsigned called = seen.of[UU_FRAME_SEMANTIC];
    CHECK(walk(UU_WALK_SEMANTIC | UU_WALK_TRUST_PLUGINS).request.count == called);
    CHECK(walk(0).of[UU_FRAME_SEMANTIC] == 0);

    CHECK(uu_handle_faults() == 0);
    seen = walk(0);
    CHECK(seen.of[UU_FRAME_SEMANTIC] == called && seen.request.doubt == 0);
    seen = walk(UU_WALK_PROBED);
    CHECK(seen.of[UU_FRAME_SEMANTIC] == 0 && seen.request.doubt == not_called);
    /* Where a fault would be the end. */
    sigset_t faults, before;
    sigemptyset(&faults), sigaddset(&faults, SIGSEGV), sigaddset(&faults, SIGBUS);
    CHECK(sigprocmask(SIG_BLOCK, &faults, &before) == 0);
    seen = walk(UU_WALK_PROBED | UU_WALK_TRUST_PLUGINS);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(seen.of[UU_FRAME_SEMANTIC] == called && seen.request.doubt == 0);
}

static unsigned called_back;
__attribute__((noinline, noipa)) static void callback(void) {
    const unsigned native = walk(UU_WALK_NATIVE).request.count;
    CHECK(walk(UU_WALK_NATIVE | UU_WALK_WINDOW).request.count == native + 1);
    struct seen seen = walk(UU_WALK_WINDOW);
    CHECK(seen.request.count == 1 && seen.of[UU_FRAME_WINDOW] == 1);
    CHECK(walk(UU_WALK_NATIVE).of[UU_FRAME_WINDOW] == 0 && walk(UU_WALK_SEMANTIC).of[UU_FRAME_WINDOW] == 0);
    seen = walk(0);
    CHECK(seen.of[UU_FRAME_WINDOW] == 1 && seen.of[UU_FRAME_NATIVE] == native);
    called_back++;
}

static void windows(void) {
    /* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    void *text = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(text != MAP_FAILED);
    memcpy(text, code, sizeof code);
    static const struct uu_function function = {
        .len = sizeof code, .unwind = UU_NO_UNWIND, .name_len = 6, .name = "jitted"};
    struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_FRAME_POINTER, .text = text,
                               .text_len = sizeof code, .functions = &function, .functions_room = 1};
    CHECK(uu_register_window(&window) == 0);
    union {
        void *object;
        void (*function)(void (*)(void));
    } jitted = {text};
    jitted.function(callback);
    CHECK(called_back == 1 && uu_unregister_window(text) == 0);
}

int main(void) {
    CHECK(uu_setup() > 1);
    plugins();
    windows();
    puts("ok");
    return 0;
}
