/* A plugin in one C file: shows the frames of the toy interpreter (toy.c) in its host's stacks.
 *
 * The idea, which most interpreters allow: many frames of the language run in one C call of the interpreter's loop. The
 * interpreter's own chain of frames has the functions that run, but not which of them belong to which C call. Each
 * frame, however, has an address inside the C frame of its loop. So frames need not be counted or matched by name: if
 * that address lies in [sp, cfa) of the current native frame, the frame belongs to it.
 *
 * Two halves. analyse() finds in the ELF file what the signal half must know, once for each file; line() decodes line
 * tables when the recording ends; `language` is what reports must know. overlay() is called for each native frame of such an
 * object, in a signal handler: see uu_plugin.h for what it may not do. */
#include "toy.h"
#include <string.h>
#include <uu_plugin.h>

/* ---- analyse: outside of handlers -------------------------------------------------------------------------------- */

/* The facts, which the analyse half passes to the signal half. They are kept in memory only, and read by the same
 * build, but name their version anyway. */
struct facts {
    uint32_t size;
    uint32_t version;
    uint64_t vm;              /* address of toy_vm, as in the file */
    uint64_t run, run_end;    /* range of toy_run */
};
#define VERSION 1

static ptrdiff_t analyse(const struct uu_object_file *object, uint8_t *out, size_t capacity) {
    struct facts facts = {sizeof facts, VERSION, 0, 0, 0};
    uint64_t size;
    if (!object->symbol(object->host, "toy_vm", &facts.vm, &size))
        return 0; /* not ours */
    if (size != sizeof(struct toy_vm) || !object->symbol(object->host, "toy_run", &facts.run, &size) || size == 0) {
        object->note(object->host, "a toy interpreter of another version; its frames are not shown");
        return -1;
    }
    facts.run_end = facts.run + size;
    if (capacity < sizeof facts)
        return 0;
    memcpy(out, &facts, sizeof facts);
    return sizeof facts;
}

/* ---- line and language: outside of handlers, too ----------------------------------------------------------------- */

/* The one kind of line table: for each word of the code, lines after the first. */
#define TABLE_WORDS 1u

static uint32_t line(const struct uu_position *at) {
    if (at->table_kind != TABLE_WORDS || at->position >= at->table_len)
        return 0;
    return at->first_line + at->table[at->position];
}

static const char *const glue[] = {"toy_call", 0};
static const struct uu_language language = {.size = sizeof language, .label = "ty", .glue = glue};

/* ---- overlay: inside handlers ------------------------------------------------------------------------------------ */

/* What one walk remembers between native frames, in its scratch memory, which begins as zero. */
struct walk {
    uint64_t begun;
    uint64_t next; /* the innermost frame of the language that no native frame has had yet */
};

/* A frame of the language is read once, whole; more than this many in one C call are not shown. */
#define FRAMES 64

static uint32_t name_of(struct uu_view *view, uint64_t function, const struct toy_function *f) {
    uint32_t id = view->host->find_name(view->walk, function, f->serial);
    if (id != 0)
        return id;
    struct uu_description d = {
        .code = function,
        .fingerprint = f->serial,
        .name = {(uint64_t)(uintptr_t)f->name, f->name_len, 1, 1},
        .file = {(uint64_t)(uintptr_t)f->file, f->file_len, 1, 1},
        .first_line = f->first_line,
        .table = {(uint64_t)(uintptr_t)f->lines, f->words, 1, 0},
        .table_kind = TABLE_WORDS,
    };
    return view->host->describe(view->walk, &d);
}

static uint32_t overlay(struct uu_view *view) {
    struct walk *walk = (struct walk *)view->scratch;
    struct facts facts;
    if (view->facts_len != sizeof facts)
        return UU_OVERLAY_NONE;
    memcpy(&facts, view->facts, sizeof facts);
    /* A return address may be the first address after the function: the call precedes it. */
    uint64_t pc = view->pc - !view->exact - view->bias;
    if (facts.version != VERSION || pc < facts.run || pc >= facts.run_end)
        return UU_OVERLAY_NONE;
    if (!walk->begun) {
        walk->begun = 1;
        if (!view->host->read_word(view->walk, facts.vm + view->bias, &walk->next))
            return UU_OVERLAY_DESYNC;
    }
    for (int i = 0; i < FRAMES && walk->next != 0; i++) {
        struct toy_frame frame;
        struct toy_function function;
        if (!view->host->read(view->walk, walk->next, (uint8_t *)&frame, sizeof frame))
            return UU_OVERLAY_INTERPRETER | UU_OVERLAY_DESYNC;
        uint64_t activation = (uint64_t)(uintptr_t)frame.activation, code = (uint64_t)(uintptr_t)frame.function;
        if (activation < view->sp || activation >= view->cfa)
            break; /* it belongs to an outer C call */
        if (!view->host->read(view->walk, code, (uint8_t *)&function, sizeof function))
            return UU_OVERLAY_INTERPRETER | UU_OVERLAY_DESYNC;
        /* As numbers: what was read may be anything. */
        uint64_t word = ((uint64_t)(uintptr_t)frame.ip - (uint64_t)(uintptr_t)function.code) / sizeof(int32_t);
        if (!view->host->emit(view->walk, name_of(view, code, &function), word))
            break; /* the stack is full */
        walk->next = (uint64_t)(uintptr_t)frame.outer;
    }
    return UU_OVERLAY_INTERPRETER;
}

static const struct uu_plugin table = {
    .size = sizeof table,
    .abi = UU_PLUGIN_ABI,
    .name = "toy",
    .flags = UU_PLUGIN_NO_REGISTERS,
    .scratch_bytes = sizeof(struct walk),
    .overlay = overlay,
    .analyse = analyse,
    .language = &language,
    .line = line,
};

const struct uu_plugin *uu_plugin(uint32_t host_abi) {
    return host_abi >= UU_PLUGIN_ABI ? &table : 0;
}
