/* Windows of code without unwind data on AArch64, with a rule in C. Captures in a function that they call, and in
 * handlers that interrupt a leaf whose return address is in x30. Prints what is wrong, and ends with 1 then. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <uu.h>
#include <uu_plugin.h> /* UU_SP */

/* Calls the function in x0 with the argument in x1. x29 stays the caller's, so a chain of frame records passes by it.
 * Then a leaf, which is interrupted before and after it has signed its return address. */
__asm__(".text\n"
        ".globl code, leaf, code_end\n"
        "code: paciasp\n"
        "    stp x29, x30, [sp, #-32]!\n"
        "    stp x19, x20, [sp, #16]\n"
        "    mov x19, x1\n"
        "    mov x20, x0\n"
        "    mov x0, x1\n"
        "    blr x20\n"
        "    ldp x19, x20, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    autiasp\n"
        "    ret\n"
        "leaf: brk #1\n"
        "    paciasp\n"
        "    brk #1\n"
        "    autiasp\n"
        "    ret\n"
        "code_end:\n");
extern const unsigned char code[], leaf[], code_end[];

enum { FIRST_SAVED = 8, ALL_SAVED = 12, CALL = 24, ALL_RESTORED = 32, NOTHING_SAVED = 36, TEXT = 4096 };

/* The unwind table of that code, as a JIT has it in its head. */
static uint32_t rule_at(unsigned offset, struct uu_rule *rule) {
    memset(rule, 0, sizeof *rule);
    rule->size = sizeof *rule, rule->kind = UU_RULE_OFFSET, rule->reg = UU_SP;
    for (int i = 0; i < UU_RULE_SLOTS; i++)
        rule->slots[i] = UU_SAME;
    if (offset >= FIRST_SAVED && offset < NOTHING_SAVED) {
        rule->offset = 32;
        rule->slots[10] = -4, rule->slots[11] = -3; /* x29, return address */
        if (offset >= ALL_SAVED && offset < ALL_RESTORED)
            rule->slots[0] = -2, rule->slots[1] = -1; /* x19, x20 */
    }
    return 1;
}

static uint32_t rule(void *user, uint64_t pc, struct uu_rule *out) {
    return rule_at((unsigned)(pc - (uint64_t)user), out);
}

#define IN(name) __attribute__((noinline, section(#name "_text")))
extern const char __start_inner_text[], __stop_inner_text[], __start_middle_text[], __stop_middle_text[],
    __start_outer_text[], __stop_outer_text[];
typedef void function(void *);
typedef void relay(function *, void *);

static unsigned char *first, *second;
static int wrong, checked;

static relay *relay_at(unsigned char *text) {
    relay *found;
    memcpy(&found, &text, sizeof found);
    return found;
}

/* One frame: [start, end). */
struct place {
    const void *start, *end;
};

static void check(const char *what, uint64_t *frames, size_t words, uint16_t stop, const struct place *places,
                  size_t known) {
    /* A frame in a window has a second word. */
    size_t count = 0;
    for (size_t at = 0; at < words;) {
        const size_t size = UU_FRAME_KIND(frames[at]) == UU_FRAME_WINDOW ? 2 : 1;
        frames[count++] = frames[at];
        at += size;
    }
    int same = count > known && stop == UU_STOP_COMPLETE;
    for (size_t i = 0; same && i < known; i++)
        same = UU_FRAME_ADDRESS(frames[i]) >= (uint64_t)places[i].start &&
               UU_FRAME_ADDRESS(frames[i]) < (uint64_t)places[i].end;
    checked++;
    if (same)
        return;
    wrong++;
    printf("%s: stop %d, %zu frames\n", what, stop, count);
    for (size_t i = 0; i < count; i++)
        printf("  %#14lx, wanted [%p, %p)\n", (unsigned long)UU_FRAME_ADDRESS(frames[i]), i < known ? places[i].start : 0,
               i < known ? places[i].end : 0);
}

#define AFTER_CALL(text) {(text) + CALL + 4, (text) + CALL + 5}
#define BODY(name) {__start_##name##_text, __stop_##name##_text}

static void on_trap(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    uint64_t frames[64];
    uint16_t stop;
    const uint64_t pc = ((ucontext_t *)ucontext)->uc_mcontext.pc;
    const size_t count = uu_capture(frames, 64, ucontext, &stop);
    const struct place places[] = {{(void *)pc, (void *)(pc + 1)}, BODY(inner),          AFTER_CALL(second),
                                   BODY(middle),                   AFTER_CALL(first), BODY(outer)};
    check(pc - (uint64_t)first < TEXT ? "leaf in the first window" : "leaf in the second window", frames, count, stop, places, 6);
    ((ucontext_t *)ucontext)->uc_mcontext.pc += 4;
}

IN(inner) static void inner(void *end) {
    uint64_t frames[64];
    uint16_t stop;
    const size_t count = uu_capture(frames, 64, NULL, &stop);
    const struct place places[] = {BODY(inner), AFTER_CALL(second), BODY(middle), AFTER_CALL(first), BODY(outer)};
    check("call", frames, count, stop, places, 5);
    unsigned char *const windows[] = {first, second};
    for (int i = 0; i < 2; i++) {
        void (*trap)(void);
        unsigned char *const at = windows[i] + (leaf - code);
        memcpy(&trap, &at, sizeof trap);
        trap();
    }
    *(int *)end += 1;
}

IN(middle) static void middle(void *end) {
    relay_at(second)(inner, end);
    *(int *)end += 1;
}

IN(outer) static int outer(void) {
    int end = 0;
    relay_at(first)(middle, &end);
    return end == 2;
}

static unsigned char *window(void) {
    unsigned char *const text = mmap(0, TEXT, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(text, code, (size_t)(code_end - code));
    __builtin___clear_cache((char *)text, (char *)text + TEXT);
    struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_RULE, .text = text, .text_len = TEXT, .user = text,
                               .rule = rule};
    const int result = uu_register_window(&window);
    if (result) {
        printf("uu_register_window: %d\n", result);
        wrong++;
    }
    return text;
}

int main(void) {
    first = window();
    second = window();
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    for (int i = 0; i < 3; i++)
        wrong += !outer();
    printf("windows: %d captures, %d wrong\n", checked, wrong);
    return wrong != 0 || checked != 15;
}
