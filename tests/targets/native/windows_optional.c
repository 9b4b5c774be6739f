/* The wrappers of uu.h, in a program that does not link the library. With an argument: before and after opening that file. */
#define UU_OPTIONAL
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <uu.h>

void use(void);
void use(void) {
    static char text[4096];
    struct uu_window window;
    memset(&window, 0, sizeof window);
    window.size = sizeof window;
    window.kind = UU_WINDOW_OPAQUE;
    window.text = text;
    window.text_len = sizeof text;
    const int registered = uu_optional_register_window(&window);
    const int gone = uu_optional_unregister_window(text);
    printf("register %d, unregister %d, ticket %d\n", registered, gone, uu_optional_ticket() != 0);
    uint64_t frames[64];
    uint16_t stop = 99;
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 64};
    const int walked = uu_optional_walk(&request);
    uu_optional_capture_abandoned();
    const size_t captured = uu_optional_capture(frames, 64, 0, &stop);
    Dl_info inside;
    const int own = captured && dladdr((void *)(uintptr_t)UU_FRAME_ADDRESS(frames[0]), &inside);
    printf("walk %d, capture %d, stop %d, begins %s\n", walked, captured > 2, stop, own ? inside.dli_sname : "nowhere");
}

/* While the library is absent, a second call leaves alone what failed in the program. */
static int disturbs(void) {
    dlopen("no such object", RTLD_NOW);
    errno = 4711;
    const int absent = uu_optional_unregister_window("x");
    const int error = errno;
    const char *message = dlerror();
    return absent != -ENOSYS || error != 4711 || !message || !strstr(message, "no such object");
}

int main(int argc, char **argv) {
    use();
    if (argc > 1 && disturbs())
        return 3;
    if (argc > 1) {
        if (!dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))
            return 2;
        use();
    }
    return 0;
}
