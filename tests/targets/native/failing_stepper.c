/* A window whose stepper looks at an address elsewhere, and then answers nonsense. Prints how often captures called it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <uu.h>
#include <uu_plugin.h>

#define TEXT 0x100000000000ul

static uint64_t stack[64]; /* ends at once: a saved rbp and a return address of 0 */
static int calls, in_objects;

static uint32_t step(struct uu_view *view) {
    struct uu_owner owner;
    calls++;
    view->host->lookup(view->walk, (uint64_t)&step, &owner);
    in_objects += owner.kind == UU_OWNER_OBJECT;
    return ~0u;
}

int main(void) {
    struct uu_window window;
    memset(&window, 0, sizeof window);
    window.size = sizeof window;
    window.kind = UU_WINDOW_STEPPER;
    window.text = (void *)TEXT;
    window.text_len = 0x1000;
    window.step = step;
    if (uu_register_window(&window))
        return 2;
    for (int i = 0; i < 10; i++) {
        ucontext_t context;
        uint64_t frames[8];
        memset(&context, 0, sizeof context);
        context.uc_mcontext.gregs[REG_RIP] = TEXT + 0x123;
        context.uc_mcontext.gregs[REG_RSP] = (greg_t)stack;
        context.uc_mcontext.gregs[REG_RBP] = (greg_t)(stack + 2);
        const size_t count = uu_capture(frames, 8, &context, 0);
        if (count == 0 || UU_FRAME_KIND(frames[0]) != UU_FRAME_WINDOW)
            return 3;
    }
    printf("calls %d, lookups %d\n", calls, in_objects);
    return 0;
}
