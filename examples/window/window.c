/* A JIT in miniature: it writes machine code into memory of its own, registers it with uu, is called back from it,
 * and unregisters the window before it wipes the code.
 *
 * The code keeps a frame pointer, so UU_WINDOW_FRAME_POINTER is the window's kind. Without the registration a walk
 * would follow the same chain, but nothing would guarantee it.
 *
 *     cc -O2 -Itarget/uu/include -o window examples/window/window.c -Ltarget/uu/lib -luunwind -Wl,-rpath,target/uu/lib
 *     ./window
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <uu.h>

static uint64_t frames[64];
static size_t count;
static uint16_t stop;

__attribute__((noinline)) static void callback(void) {
    count = uu_capture(frames, sizeof frames / sizeof *frames, 0, &stop);
}

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

int main(void) {
    size_t size = 4096;
    unsigned char *text = mmap(0, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (text == MAP_FAILED)
        return 2;
    memcpy(text, code, sizeof code);
    struct uu_window window;
    memset(&window, 0, sizeof window);
    window.size = sizeof window;
    window.kind = UU_WINDOW_FRAME_POINTER;
    window.text = text;
    window.text_len = size;
    printf("register %d\n", uu_register_window(&window));
    printf("again %d\n", uu_register_window(&window)); /* -EEXIST */

    void (*jitted)(void (*)(void));
    memcpy(&jitted, &text, sizeof jitted);
    jitted(callback);
    int seen = 0;
    for (size_t i = 0; i < count; i += UU_FRAME_KIND(frames[i]) == UU_FRAME_WINDOW ? 2 : 1) {
        uint64_t address = UU_FRAME_ADDRESS(frames[i]);
        seen += UU_FRAME_KIND(frames[i]) == UU_FRAME_WINDOW && address > (uintptr_t)text &&
                address <= (uintptr_t)text + sizeof code;
    }
    printf("frames in the window %d, stop %d\n", seen, stop);

    /* 0: no walk can still read the window, so its text may be wiped. After -ETIMEDOUT it must not be. */
    int gone = uu_unregister_window(text);
    printf("unregister %d\n", gone);
    printf("unknown %d\n", uu_unregister_window(text)); /* -ENOENT */
    if (gone == 0)
        munmap(text, size);
    return seen == 1 && stop == UU_STOP_COMPLETE && gone == 0 ? 0 : 1;
}
