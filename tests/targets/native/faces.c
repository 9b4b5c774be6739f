/* A plugin that misbehaves in the way that UU_FACE selects (a "face"). Built twice: with -DGOOD it behaves, and emits one frame for each
   frame of the object that it claims. */
#define _GNU_SOURCE
#include "faces.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uu_plugin.h>

#ifdef GOOD
#define NAME "good"
#define MARK GOOD_MARK
#else
#define NAME "bad"
#define MARK BAD_MARK
#endif

static const char *face = "";
static int is(const char *name) { return strcmp(face, name) == 0; }

static uint32_t emit(struct uu_view *view) {
    static const char name[] = NAME " frame", file[] = NAME ".lang";
    uint32_t id = view->host->find_name(view->walk, (uint64_t)(uintptr_t)name, 1);
    if (!id) {
        struct uu_description d = {.code = (uint64_t)(uintptr_t)name, .fingerprint = 1,
                                   .name = {(uint64_t)(uintptr_t)name, sizeof name - 1, 1, 3},
                                   .file = {(uint64_t)(uintptr_t)file, sizeof file - 1, 1, 3}, .first_line = 1};
        id = view->host->describe(view->walk, &d);
    }
    return view->host->emit(view->walk, id, 7);
}

/* The faces of overlay. Each emits a frame first, which must be taken back. */
enum { NULL_READ, WILD_READ, WILD_WRITE, WILD_JUMP, FAR_JUMP, TRAP, DIVIDE, REGISTERS, REGISTERS_FAULT, STACK_POINTER, DIRECTION,
       DIRECTION_FAULT, RECURSION, RECURSION_IN_HOST, LOOP, NONSENSE, ENDLESS, READS, ENDLESS_READS, BUS, COPY, RAISES, ENDLESS_EMITS,
       ENDLESS_RECALLS, ENDLESS_HASHES, ENDLESS_DESCRIPTIONS, ENDLESS_PAGES, EXIT, CLOSES, FORKS, GARBAGE, LIES, FACES };
#ifndef GOOD
static const char *const names[FACES] = {"null-read", "wild-read", "wild-write", "wild-jump", "far-jump", "trap", "divide", "registers",
    "registers-fault", "stack-pointer", "direction", "direction-fault", "recursion", "recursion-in-host", "loop", "nonsense", "endless", "reads", "endless-reads",
    "bus", "copy", "raises", "endless-emits", "endless-recalls", "endless-hashes", "endless-descriptions",
    "endless-pages", "exit", "closes", "forks", "garbage", "lies"};
#endif
static int number = -1;

static volatile int zero;
static const char garbage[4096] = "\x08\0\0\0garbage";

__attribute__((noinline)) static int recurse(volatile char *from) {
    volatile char room[4096];
    room[0] = from[0];
    return room[0] == 0 ? 0 : recurse(room) + room[0]; /* never 0 */
}

/* With so little of its own that it is the library's frame that has no room: what it calls needs more. */
__attribute__((noinline)) static uint32_t recurse_in_host(struct uu_view *view, uint64_t depth) {
    uint64_t word = depth;
    view->host->read_word(view->walk, (uint64_t)(uintptr_t)&word, &word);
    return word == 0 && depth ? 0 : recurse_in_host(view, word + 1) + (uint32_t)word; /* never the former */
}

#define DESTROY "xor %%ebx, %%ebx\n mov $0x31337, %%ebp\n mov $-1, %%r12\n mov %%r12, %%r13\n mov %%r12, %%r14\n mov %%r12, %%r15\n"

static uint32_t overlay(struct uu_view *view) {
    if (number != READS)
        emit(view);
    switch (number) {
    case NULL_READ: return *(volatile uint32_t *)(uintptr_t)zero;
    case WILD_READ: return *(volatile uint32_t *)0xdeadbeefdeadbee0;
    case WILD_WRITE: *(volatile uint32_t *)(uintptr_t)(zero + 0x10) = 1; return 0;
    case WILD_JUMP: ((void (*)(void))(uintptr_t)(zero + 0x1230))(); return 0;
    case FAR_JUMP: ((void (*)(void))0xdeadbeefdeadbee0)(); return 0;
    case TRAP: __builtin_trap();
    case DIVIDE: return 100000u / (uint32_t)zero;
    /* Like a function that violates the calling convention: the compiler is given no clobbers. */
    case REGISTERS: __asm__ volatile("mov %0, %%rsp\n mov $1, %%eax\n" DESTROY "ret" : : "r"((uint64_t *)__builtin_frame_address(0) + 1) : "memory"); return 0;
    case REGISTERS_FAULT: __asm__ volatile(DESTROY "mov 0, %%rax" : : : "memory"); return 0;
    case STACK_POINTER: __asm__ volatile("mov $0x1230, %%rsp\n push %%rax" : : : "memory"); return 0;
    case DIRECTION: __asm__ volatile("std"); return 0;
    case DIRECTION_FAULT: __asm__ volatile("std\n mov 0, %%rax" : : : "rax", "memory"); return 0;
    case RECURSION: { volatile char c = 1; return (uint32_t)recurse(&c); }
    case RECURSION_IN_HOST: return recurse_in_host(view, 0);
    case LOOP: for (;;) zero = 0;
    case NONSENSE: return 0xdeadbeef;
    case ENDLESS: for (;;) emit(view);
    case BUS: { /* a page beyond the file's end */
        int file = memfd_create("empty", 0);
        volatile uint32_t *page = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        return *page; }
    case COPY: { /* in libc, for the plugin */
        char copy[4096];
        memcpy(copy, (void *)(uintptr_t)(zero + 8), (size_t)(zero + 4096));
        return (uint32_t)copy[zero + 7]; }
    case RAISES: /* the program's handler runs on top of this call */
        raise(SIGUSR1);
        return *(volatile uint32_t *)(uintptr_t)zero;
    case ENDLESS_EMITS: for (uint64_t frames[4][2] = {{0}};;) view->host->emit_all(view->walk, frames, 4);
    case ENDLESS_RECALLS: for (uint64_t key[5] = {1}, answer[2];;) view->host->recall(view->walk, key, answer);
    case ENDLESS_HASHES: for (uint64_t hash;;) view->host->hash(view->walk, view->sp, 8, &hash);
    case ENDLESS_DESCRIPTIONS: for (struct uu_description d = {.code = 1};;) view->host->describe(view->walk, &d);
    case ENDLESS_READS: for (uint64_t word;;) view->host->read_word(view->walk, view->sp, &word);
    case ENDLESS_PAGES: for (uint64_t word, at = 0;; at += 4096) view->host->read_word(view->walk, at, &word);
    case EXIT: _exit(0);
    case CLOSES: for (int fd = 0; fd < 64; fd++) close(fd); return 0;
    case FORKS: for (int i = 0; i < 8; i++) fork(); for (;;) zero = 0;
    case GARBAGE: for (int fd = 3; fd < 64; fd++) if (write(fd, garbage, sizeof garbage) < 0) zero = 0; return 0;
    case LIES: /* a name that it was not given, more frames than there is room for, the right answer */
        for (uint64_t frames[1][2] = {{3, 9}}, i = 0; i < 100000 && view->host->emit_all(view->walk, frames, 1); i++) ;
        return UU_OVERLAY_INTERPRETER;
    case READS: { /* failures that the contract allows: the plugin gets an error, and no failure is counted */
        uint64_t word;
        uint8_t bytes[64];
        int wrong = view->host->read_word(view->walk, 0, &word) + view->host->read_word(view->walk, 0xdeadbeefdeadbee0, &word) +
                    view->host->read(view->walk, 0x1000, bytes, sizeof bytes) + view->host->read(view->walk, ~0ull - 8, bytes, 64);
        return wrong ? 0xdeadbeef : 0; }
    }
    return UU_OVERLAY_NONE;
}

#ifndef GOOD
static uint32_t step(struct uu_view *view) {
    if (is("unrelated-fault"))
        return *(volatile uint32_t *)(uintptr_t)(zero + 16);
    emit(view);
    view->caller->pc = view->pc;
    view->caller->registers[UU_RSP] = view->sp - (is("backwards") ? 4096 : 0);
    return UU_STEP_DONE;
}

static uint32_t rule(struct uu_view *view, struct uu_rule *rule) {
    if (is("rule-fault"))
        return *(volatile uint32_t *)(uintptr_t)(zero + 8);
    if (is("rule-lie")) {
        rule->kind = 77;
        return 1;
    }
    (void)view;
    return 12345;
}

#endif

static ptrdiff_t analyse(const struct uu_object_file *object, uint8_t *facts, size_t capacity) {
    uint64_t address, size;
    if (!object->symbol(object->host, MARK, &address, &size))
        return 0;
    if (is("analyse-crash"))
        __builtin_trap();
    if (is("analyse-hang"))
        for (;;)
            pause();
    if (is("analyse-liar"))
        return (ptrdiff_t)capacity + 1;
    if (is("analyse-exit"))
        _exit(0);
    if (is("analyse-memory"))
        for (;;)
            *(volatile char *)malloc(1 << 20) = 1;
    if (is("analyse-refuses")) {
        object->note(object->host, "a version\nthat is not known");
        return -1;
    }
    facts[0] = 1;
    return 1;
}

static struct uu_plugin table = {.size = sizeof table, .abi = UU_PLUGIN_ABI, .name = NAME, .overlay = overlay, .analyse = analyse};

const struct uu_plugin *uu_plugin(uint32_t host_abi) {
    (void)host_abi;
#ifndef GOOD
    face = getenv("UU_FACE");
    if (!face)
        face = "";
    for (int i = 0; i < FACES; i++)
        if (is(names[i]))
            number = i;
    if (is("declines"))
        return 0;
    if (is("other-abi"))
        table.abi = 99;
    if (is("small-table"))
        table.size = 16;
    if (is("no-name"))
        memset(table.name, 0, sizeof table.name);
    if (is("open-hang") && getenv("UU_SESSION") == 0)
        for (;;)
            pause();
    if (is("backwards") || is("stands-still"))
        table.step = step;
    if (is("unrelated-fault")) {
        table.step = step;
        table.flags |= UU_PLUGIN_UNOWNED;
    }
    if (strncmp(face, "rule", 4) == 0)
        table.rule = rule;
#endif
    return &table;
}
