/* Where libuunwind-compat.so cannot show the frames of languages, its cursors say so in the last step: refused
   inside|other. "inside": in a callback of uu_walk(); "other": at the context of a coroutine that is switched away from. Prints
   the names of the steps. */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <uu.h>

static void show(unw_context_t *context) {
    unw_cursor_t cursor;
    char name[4096];
    int result;
    if (unw_init_local(&cursor, context))
        exit(3);
    do
        puts(unw_get_proc_name(&cursor, name, sizeof name, 0) ? "?" : name);
    while ((result = unw_step(&cursor)) > 0);
    printf("end %d\n", result);
}

static int each(void *user, const uint64_t *frame, size_t words) {
    (void)user, (void)frame, (void)words;
    unw_context_t context;
    unw_getcontext(&context);
    show(&context);
    return 1;
}

static ucontext_t outside, coroutine;

__attribute__((noinline)) void waits(void) {
    swapcontext(&coroutine, &outside);
    __asm__ volatile("" ::: "memory");
}

static void body(void) {
    waits();
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    if (!strcmp(argv[1], "inside")) {
        struct uu_request request = {.size = sizeof request, .frame = each};
        return uu_walk(&request);
    }
    enum { SIZE = 1 << 18 };
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = malloc(SIZE);
    coroutine.uc_stack.ss_size = SIZE;
    makecontext(&coroutine, body, 0);
    swapcontext(&outside, &coroutine);
    show(&coroutine);
    return 0;
}
