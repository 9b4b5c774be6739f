/* Two copies of the library in one process. Usage: windows_copies FIRST SECOND [signal|global]
   With "global", the names of the first copy are there for everyone.
   With "signal": code in a window that was registered in the first copy is sampled when this program is recorded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <uu.h>

struct copy {
    __typeof__(&uu_register_window) enter;
    __typeof__(&uu_unregister_window) leave;
    __typeof__(&uu_capture) capture;
};

static void *find(void *library, const char *name) { return dlsym(library, name); }

static struct copy open_copy(const char *path, int scope) {
    void *library = dlopen(path, RTLD_NOW | scope);
    struct copy copy = {0};
    if (library) {
        copy.enter = (__typeof__(copy.enter))find(library, "uu_register_window");
        copy.leave = (__typeof__(copy.leave))find(library, "uu_unregister_window");
        copy.capture = (__typeof__(copy.capture))find(library, "uu_capture");
    }
    return copy;
}

/* Whether a walk from a made-up frame at `pc` sees a window. */
static int sees(struct copy copy, const void *pc) {
    static uint64_t stack[8];
    uint64_t frames[4];
    ucontext_t context;
    memset(&context, 0, sizeof context);
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)pc + 1;
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)stack;
    return copy.capture(frames, 4, &context, 0) > 0 && UU_FRAME_KIND(frames[0]) == UU_FRAME_WINDOW;
}

static void here(void) { raise(SIGPROF); }

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    const int global = argc > 3 && !strcmp(argv[3], "global");
    const struct copy first = open_copy(argv[1], global ? RTLD_GLOBAL : RTLD_LOCAL), second = open_copy(argv[2], RTLD_LOCAL);
    if (!first.enter || !second.enter || first.enter == second.enter)
        return 2;
    printf("two copies\n");
    unsigned char *text = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (text == MAP_FAILED)
        return 2;
    memcpy(text, code, sizeof code);
    struct uu_function function = {0, sizeof code, UU_NO_UNWIND, 6, "copies"};
    struct uu_window window;
    memset(&window, 0, sizeof window);
    window.size = sizeof window;
    window.kind = UU_WINDOW_FRAME_POINTER;
    window.text = text;
    window.text_len = 4096;
    window.functions = &function;
    window.functions_room = 1;
    if (second.enter(&window))
        return 3;
    if (argc > 3 && !global) {
        void (*jitted)(void (*)(void));
        memcpy(&jitted, &text, sizeof jitted);
        jitted(here);
    }
    printf("first sees %d, second sees %d\n", sees(first, text), sees(second, text));
    printf("exists %d\n", first.enter(&window));
    printf("gone %d\n", first.leave(text));
    printf("first sees %d, second sees %d\n", sees(first, text), sees(second, text));
    return 0;
}
