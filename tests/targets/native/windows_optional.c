/* The wrappers of uu.h, in a program that does not link the library. With an argument: before and after opening that file. */
#define UU_OPTIONAL
#include <stdio.h>
#include <string.h>
#include <uu.h>

static void use(void) {
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
