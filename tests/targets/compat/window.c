/* Code without unwind data, in a window of uu.h: functions call each other through it, and each interface finds all of
   them. The code and the functions know how deep they are. */
#define UNW_LOCAL_ONLY
#include <execinfo.h>
#include <libunwind.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>
#include <uu.h>

enum { DEPTH = 40, FRAMES = 200, AFTER_CALL = 6 };
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static void (*jit)(void (*)(void));
static int left, wrong;

struct Stack {
    uintptr_t frames[FRAMES];
    int count;
};

static _Unwind_Reason_Code each(struct _Unwind_Context *context, void *argument) {
    struct Stack *stack = argument;
    uintptr_t ip = _Unwind_GetIP(context);
    if (ip && stack->count < FRAMES)
        stack->frames[stack->count++] = ip;
    return _URC_NO_REASON;
}

static void expect(const char *what, const struct Stack *stack, int outside) {
    int inside = 0;
    for (int i = 0; i < stack->count; i++)
        inside += stack->frames[i] == (uintptr_t)jit + AFTER_CALL;
    /* Between two frames of the window is one of `again`. */
    if (inside != DEPTH || stack->count != 2 * DEPTH + outside) {
        printf("%s: %d frames, %d in the window\n", what, stack->count, inside);
        wrong = 1;
    }
}

__attribute__((noinline)) static void take(int outside) {
    struct Stack all = {{0}, 0}, one = {{0}, 0};
    all.count = backtrace((void **)all.frames, FRAMES);
    expect("backtrace", &all, outside);
    one.count = unw_backtrace((void **)one.frames, FRAMES);
    expect("unw_backtrace", &one, outside);
    one.count = 0;
    _Unwind_Backtrace(each, &one);
    expect("_Unwind_Backtrace", &one, outside);
    unw_context_t context;
    unw_cursor_t cursor;
    one.count = 0;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    do {
        unw_word_t ip = 0;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        one.frames[one.count++] = ip;
    } while (unw_step(&cursor) > 0 && one.count < FRAMES);
    expect("a cursor", &one, outside);
    /* Frames in windows take two words where the library writes them: no buffer is too small for that. */
    for (int size = 1; size <= all.count; size++) {
        void *some[FRAMES];
        int count = backtrace(some, size);
        if (count != size || memcmp(some + 1, all.frames + 1, sizeof some[0] * (size - 1))) {
            printf("a buffer of %d: %d frames\n", size, count);
            wrong = 1;
        }
    }
}

static int outside;
__attribute__((noinline)) static void again(void) {
    if (left-- > 0)
        jit(again);
    else
        take(outside);
    __asm__ volatile("" ::: "memory");
}

int main(void) {
    void *text = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_FRAME_POINTER, .text = text, .text_len = 4096};
    void *frames[FRAMES];
    memcpy(text, code, sizeof code);
    mprotect(text, 4096, PROT_READ | PROT_EXEC);
    if (uu_register_window(&window))
        return 2;
    /* main and what started it; `take`, and the outermost `again`. */
    outside = backtrace(frames, FRAMES) + 2;
    jit = (void (*)(void (*)(void)))text;
    left = DEPTH;
    again();
    puts(wrong ? "not whole" : "whole");
    return wrong;
}
