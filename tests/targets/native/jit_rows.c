/* A JIT whose code has no unwind data, and which tells GDB's list of it. `call_back` takes an explicit sample.
 *
 * jit_rows compiled FILE: the code of a relocatable object is placed, reported, and then relocated, as LLVM does it;
 * `jit_entry` of it is called.
 * jit_rows stands FILE: the same, without a recorder. Once in it, it writes "ready" and waits for the end of its input.
 * jit_rows replaced: code is replaced by other code at the same address, which nothing reports, and which has a return
 * address of `decoy` where that of its own would lie by the rules of the code before. Then the new code is reported.
 *
 * Before a sample that needs them it waits until the recorder has published the rules. */
#include "code_without_rows.h"
#include "gdb_object.h"

/* ---- compiled ---- */
__attribute__((noinline)) static void run_compiled(const char *path, void (*work)(void)) {
    struct placed placed = place_object(path);
    struct entry reported = {NULL, NULL, placed.file, placed.size};
    register_entry(&reported);
    relocate_object(&placed);
    run_object(&placed, work);
    STAY;
}

/* ---- replaced ---- */
__attribute__((noinline)) static void run_replaced(void) {
    unsigned char *place = new_place();
    uint64_t wrong = decoy();
    static struct entry first, second;
    struct image *image = new_image(place, sizeof FIRST);
    add_function(image, "first", 0, sizeof FIRST);
    memcpy(place, FIRST, sizeof FIRST);
    first = (struct entry){NULL, NULL, image, sizeof *image};
    register_entry(&first);
    wait_for_rules(place);
    run_code((Code *)place, wrong);
    memcpy(place, SECOND, sizeof SECOND);
    run_code((Code *)place, wrong);
    image = new_image(place, sizeof SECOND);
    add_function(image, "second", 0, sizeof SECOND);
    second = (struct entry){NULL, NULL, image, sizeof *image};
    register_entry(&second);
    wait_for_rules(place);
    run_code((Code *)place, wrong);
    STAY;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "compiled") == 0)
        run_compiled(argv[2], call_back);
    else if (argc > 2 && strcmp(argv[1], "stands") == 0)
        run_compiled(argv[2], stand);
    else if (argc > 1 && strcmp(argv[1], "replaced") == 0)
        run_replaced();
    else
        return 2;
    return 0;
}
