/* Code made at run time, in which threads stay while someone looks from outside. Each thread goes through two functions
 * that keep no frame pointer (they destroy rbp) and are described in the way that is the thread's name:
 *
 *   eh-frame, sframe   windows of uu.h, with names (compiled with -DWINDOWS, and linked with libuunwind)
 *   sorted, register   given to __register_frame, before and after a search that sorts what it finds
 *   gdb, placed        objects of GDB's JIT interface, with unwind data in the object, and where the object says
 *
 * With "spin", the threads run; else they wait. It prints each thread's name and, with windows, the number of frames that
 * it captures itself from called_back on; then "ready". */
#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "emit.h"
#ifndef WINDOWS
#include "gdb_object.h"
#endif

#define STAY __asm__ volatile("" ::: "memory")

void __register_frame(void *);
struct dwarf_eh_bases { void *tbase, *dbase, *function; };
const void *_Unwind_Find_FDE(void *, struct dwarf_eh_bases *);

/* Two functions that call each other, their unwind data, and its lengths. */
struct code {
    unsigned char *text, *starts[2];
    unsigned char *sframe; /* has distances of 32 bits: beside the text */
    unsigned char eh_frame[512];
    size_t eh_frame_len, sframe_len, offsets[2];
};

static const unsigned pads[2] = {1, 3};

static struct code *new_code(void) {
    struct code *code = calloc(1, sizeof *code);
    code->text = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    code->sframe = code->text + 2048;
    unsigned char *to = emit_cie(code->eh_frame);
    for (unsigned i = 0; i < 2; i++) {
        code->starts[i] = code->text + 64 * i;
        emit_plain(code->starts[i], pads[i]);
        code->offsets[i] = (size_t)(to - code->eh_frame);
        to = emit_fde(to, code->eh_frame, code->starts[i], pads[i]);
    }
    code->eh_frame_len = (size_t)(to - code->eh_frame);
    code->sframe_len = emit_sframe(code->sframe, code->starts, pads, 2);
    return code;
}

static int waits[2], spins;
static volatile int over;
static pthread_barrier_t both;

struct way { const char *name; struct code *code; size_t frames; };

__attribute__((noinline)) static void called_back(void **rest) {
    struct way *way = rest[0];
    char byte;
#ifdef WINDOWS
    uint64_t words[64];
    uint16_t stop;
    size_t count = uu_capture(words, 64, 0, &stop);
    for (size_t i = 0; i < count; i += UU_FRAME_KIND(words[i]) == UU_FRAME_WINDOW ? 2 : 1)
        way->frames++;
    if (stop != UU_STOP_COMPLETE)
        abort();
#endif
    pthread_barrier_wait(&both);
    while (spins && !over)
        way->code->offsets[0]++;
    STAY;
    if (read(waits[0], &byte, 1) != 0)
        abort();
    STAY;
}

__attribute__((noinline)) static void *in_thread(void *given) {
    struct way *way = given;
    prctl(PR_SET_NAME, way->name);
    void *rest[] = {way->code->starts[1], (void *)called_back, way, NULL};
    ((function *)(void *)way->code->starts[0])(rest);
    STAY;
    return NULL;
}

#ifndef WINDOWS
static void report(struct code *code, int is_placed, const char *first, const char *second) {
    struct image *image = new_image(code->text, 128);
    struct entry *entry = calloc(1, sizeof *entry);
    add_function(image, first, 0, PLAIN_BYTES);
    add_function(image, second, 64, PLAIN_BYTES);
    image->header.e_shnum = 6;
    image->header.e_shstrndx = 4;
    image->sections[4] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = offsetof(struct image, names), .sh_size = sizeof image->names};
    image->sections[5] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC, .sh_size = code->eh_frame_len,
                                      .sh_offset = offsetof(struct image, unwind)};
    if (is_placed)
        image->sections[5].sh_addr = (uint64_t)code->eh_frame;
    else
        memcpy(image->unwind, code->eh_frame, sizeof code->eh_frame);
    strcpy(image->names + 1, ".eh_frame");
    *entry = (struct entry){__jit_debug_descriptor.first, NULL, image, sizeof *image};
    register_entry(entry);
}
#endif

#ifdef WINDOWS
static void add_window(struct code *code, uint32_t kind, const void *unwind, size_t len, const char *first, const char *second) {
    const char *names[2] = {first, second};
    struct uu_function *functions = calloc(2, sizeof *functions);
    for (unsigned i = 0; i < 2; i++) {
        functions[i].start = 64 * i;
        functions[i].len = PLAIN_BYTES;
        functions[i].unwind = kind == UU_WINDOW_EH_FRAME ? (uint32_t)code->offsets[i] : UU_NO_UNWIND;
        functions[i].name_len = (uint32_t)strlen(names[i]);
        functions[i].name = names[i];
    }
    struct uu_window window;
    memset(&window, 0, sizeof window);
    window.size = sizeof window;
    window.kind = kind;
    window.text = code->text;
    window.text_len = 2048;
    window.unwind = unwind;
    window.unwind_len = len;
    window.functions = functions;
    window.functions_room = 2;
    if (uu_register_window(&window) != 0)
        abort();
}
#endif

static void start(const char *name, struct code *code) {
    struct way *way = calloc(1, sizeof *way);
    *way = (struct way){name, code, 0};
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    if (pthread_create(&thread, NULL, in_thread, way) != 0)
        abort();
    pthread_barrier_wait(&both);
    printf("%s %zu\n", name, way->frames);
}

int main(int argc, char **argv) {
    spins = argc > 1 && strcmp(argv[1], "spin") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pipe(waits) != 0)
        return 2;
#ifdef WINDOWS
    /* Many windows make a tree of several levels. */
    for (int i = 0; i < 2000; i++) {
        struct uu_window other;
        memset(&other, 0, sizeof other);
        other.size = sizeof other;
        other.kind = UU_WINDOW_OPAQUE;
        other.text = (void *)(0x10000000ul + 0x1000ul * (unsigned long)i);
        other.text_len = 0x1000;
        if (uu_register_window(&other) != 0)
            return 2;
    }
    struct code *eh_frame = new_code(), *sframe = new_code();
    add_window(eh_frame, UU_WINDOW_EH_FRAME, eh_frame->eh_frame, eh_frame->eh_frame_len, "eh_frame_outer", "eh_frame_inner");
    add_window(sframe, UU_WINDOW_SFRAME, sframe->sframe, sframe->sframe_len, "sframe_outer", "sframe_inner");
    start("eh-frame", eh_frame);
    start("sframe", sframe);
#else
    struct code *sorted = new_code(), *last = new_code(), *gdb = new_code(), *placed = new_code();
    __register_frame(sorted->eh_frame);
    struct dwarf_eh_bases bases;
    if (!_Unwind_Find_FDE(sorted->starts[0] + 1, &bases))
        return 2;
    __register_frame(last->eh_frame);
    report(gdb, 0, "gdb_outer", "gdb_inner");
    report(placed, 1, "placed_outer", "placed_inner");
    start("sorted", sorted);
    start("register", last);
    start("gdb", gdb);
    start("placed", placed);
#endif
    printf("ready\n");
    char line[8];
    return fgets(line, sizeof line, stdin) ? 0 : 1;
}
