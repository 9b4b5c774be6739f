/* A program with libuunwind.a in it. The argument is a libuunwind.so.0: another registry. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <uu.h>

static char text[4096];

int main(int argc, char **argv) {
    uint64_t frames[64];
    uint16_t stop = 0;
    size_t count = uu_capture(frames, 64, 0, &stop);
    Dl_info own;
    int first = count && dladdr((void *)(uintptr_t)UU_FRAME_ADDRESS(frames[0]), &own);
    printf("frames %d, stop %u, begins %s\n", count >= 3, stop, first && own.dli_sname ? own.dli_sname : "nowhere");
    int tables = uu_setup();
    printf("setup %s\n", tables > 1 ? "done" : tables == -ENOENT ? "absent" : "?");

    struct uu_window window;
    memset(&window, 0, sizeof window);
    window.size = sizeof window;
    window.kind = UU_WINDOW_OPAQUE;
    window.text = text;
    window.text_len = sizeof text;
    printf("register %d\n", uu_register_window(&window));
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : 0;
    union {
        void *object;
        int (*function)(const struct uu_window *);
    } other = {library ? dlsym(library, "uu_register_window") : 0};
    if (other.object)
        printf("the other one %d\n", other.function(&window));
    printf("again %d, ", uu_register_window(&window));
    printf("unregister %d\n", uu_unregister_window(text));
    return 0;
}
