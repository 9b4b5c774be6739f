/* A JIT whose code has no unwind data, and which registers it as windows of uu.h. `call_back` takes an explicit sample.
 *
 * window_rows functions|growing|eh-frame FILE: the code of a relocatable object is placed and relocated; one window has
 * it, whose functions are given by a table. `jit_entry` of it is called.
 * window_rows stands FILE: as `functions`, without a recorder. Once in it, it writes "ready" and waits for the end of
 * its input.
 * window_rows ranges: functions of a few instructions, a window each, of which only the range is given.
 * window_rows replaced: a window is unregistered; when the recorder has dropped its rules, other code takes the place,
 * with a return address of `decoy` where that of its own would lie by the rules of the code before. It is registered,
 * and runs at once, and again when it has rules.
 *
 * Before a sample that needs them it waits until the recorder has published the rules. */
#include "code_without_rows.h"
#include <uu.h>

static void must(int result) {
    if (result != 0)
        abort();
}

static struct uu_window window_of(const void *text, size_t len, uint32_t kind) {
    struct uu_window window = {.size = sizeof window, .kind = kind, .text = text, .text_len = len};
    return window;
}

/* ---- the functions of an object ---- */
struct table {
    const unsigned char *text;
    struct uu_function functions[16];
    size_t count;
};

static void add(void *context, const char *name, const unsigned char *code, size_t size) {
    struct table *table = context;
    if (table->count == 16)
        abort();
    size_t at = table->count++;
    for (; at > 0 && table->functions[at - 1].start > (uint32_t)(code - table->text); at--)
        table->functions[at] = table->functions[at - 1];
    table->functions[at] = (struct uu_function){.start = (uint32_t)(code - table->text), .len = (uint32_t)size,
                                                .unwind = UU_NO_UNWIND, .name_len = (uint32_t)strlen(name), .name = name};
}

__attribute__((noinline)) static void run_functions(const char *how, const char *path, void (*work)(void)) {
    static const uint32_t no_unwind_data[2];
    static uint64_t published;
    struct placed placed = place_object(path);
    struct table table = {.text = placed.place};
    relocate_object(&placed);
    each_function(&placed, add, &table);
    struct uu_window window = window_of(placed.place, (size_t)(placed.end - placed.place), UU_WINDOW_CODE);
    window.functions = table.functions;
    window.functions_room = table.count;
    if (strcmp(how, "growing") == 0) {
        window.flags = UU_WINDOW_GROWING;
        window.published = &published;
    } else if (strcmp(how, "eh-frame") == 0) {
        window.kind = UU_WINDOW_EH_FRAME;
        window.unwind = no_unwind_data;
        window.unwind_len = sizeof no_unwind_data;
    }
    must(uu_register_window(&window));
    for (size_t count = 1; window.published && count <= table.count; count++) {
        uu_publish(&published, count);
        wait_for_rules(table.text + table.functions[count - 1].start);
    }
    run_object(&placed, work);
    must(uu_unregister_window(window.text));
    STAY;
}

/* ---- ranges ---- */
/* push %rbx; sub $16,%rsp; mov %rdi,%rbx; call *%rsi; add $16,%rsp; pop %rbx; ret: calls its second argument with its
 * first one. */
static const unsigned char OUTER[] = {0x53, 0x48, 0x83, 0xec, 16, 0x48, 0x89, 0xfb, 0xff, 0xd6, 0x48, 0x83, 0xc4, 16, 0x5b, 0xc3};
/* push %rbp; mov $1,%ebp; call *%rdi; pop %rbp; ret: no frame pointer. */
static const unsigned char INNER[] = {0x55, 0xbd, 1, 0, 0, 0, 0xff, 0xd7, 0x5d, 0xc3};

__attribute__((noinline)) static void run_ranges(void) {
    unsigned char *place = new_place(), *outer = place, *inner = place + 64;
    memcpy(outer, OUTER, sizeof OUTER);
    memcpy(inner, INNER, sizeof INNER);
    struct uu_window windows[] = {window_of(outer, sizeof OUTER, UU_WINDOW_CODE), window_of(inner, sizeof INNER, UU_WINDOW_CODE)};
    must(uu_register_window(&windows[0]));
    must(uu_register_window(&windows[1]));
    wait_for_rules(outer);
    wait_for_rules(inner);
    ((void (*)(void (*)(void), void *))outer)(call_back, inner);
    STAY;
}

/* ---- replaced ---- */
static void wait_for_no_rules(const void *code) {
    struct timespec moment = {0, 5000000};
    while (has_rules((uint64_t)code))
        nanosleep(&moment, NULL);
}

__attribute__((noinline)) static void run_replaced(void) {
    unsigned char *place = new_place();
    uint64_t wrong = decoy();
    struct uu_window window = window_of(place, sizeof FIRST, UU_WINDOW_CODE);
    _Static_assert(sizeof FIRST == sizeof SECOND, "the same place");
    memcpy(place, FIRST, sizeof FIRST);
    must(uu_register_window(&window));
    wait_for_rules(place);
    run_code((Code *)place, wrong);
    must(uu_unregister_window(place));
    /* The code is still there. */
    wait_for_no_rules(place);
    memcpy(place, SECOND, sizeof SECOND);
    must(uu_register_window(&window));
    run_code((Code *)place, wrong);
    wait_for_rules(place);
    run_code((Code *)place, wrong);
    STAY;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "stands") == 0)
        run_functions("functions", argv[2], stand);
    else if (argc > 2)
        run_functions(argv[1], argv[2], call_back);
    else if (argc > 1 && strcmp(argv[1], "ranges") == 0)
        run_ranges();
    else if (argc > 1 && strcmp(argv[1], "replaced") == 0)
        run_replaced();
    else
        return 2;
    return 0;
}
