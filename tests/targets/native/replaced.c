/* Code that replaces a library's, at the same return address, with a frame of another size. What was cached of the library would
   lead past one caller, into room that `hop` leaves on the stack.

   Usage: replaced (guarded|probed) library FIRST SECOND           another library, ROUNDS times each
          replaced (guarded|probed) (base|namespace) FIRST         a window, after FIRST was unloaded from that link namespace
          replaced signal library FIRST SECOND                     SIGPROF is raised instead of captures
   The truth is what libgcc's unwinder says, and for the window what was built. Prints how often a place was taken. */
#define _GNU_SOURCE
#include "uu.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>

#define MOST 64
#define ROUNDS 20
#define CAPTURES 5

static uint64_t words[MOST];
static size_t count;
static uint16_t stop;
static int signals;

static uint64_t truth[MOST];
static int frames;

static _Unwind_Reason_Code note(struct _Unwind_Context *context, void *unused) {
    (void)unused;
    if (_Unwind_GetIP(context) && frames < MOST)
        truth[frames++] = _Unwind_GetIP(context);
    return _URC_NO_REASON;
}

static void fail(const char *what) {
    printf("%s: stop %d, %zu words, %d frames\n", what, stop, count, frames);
    for (size_t i = 0; i < MOST && (i < count || (int)i < frames); i++)
        printf("%#lx, is %#lx\n", i < count ? (unsigned long)words[i] : 0, (int)i < frames ? (unsigned long)truth[i] : 0);
    exit(1);
}

/* The first frame is this function's own. */
__attribute__((noinline)) static void capture(void) {
    count = uu_capture(words, MOST, NULL, &stop);
    frames = 0;
    _Unwind_Backtrace(note, NULL);
}

__attribute__((noinline)) static void against_libgcc(void) {
    if (signals) {
        raise(SIGPROF);
        return;
    }
    capture();
    int same = stop == UU_STOP_COMPLETE && count == (size_t)frames;
    for (size_t i = 1; same && i < count; i++)
        same = words[i] == (truth[i] | (uint64_t)UU_FRAME_NATIVE << 56);
    if (!same)
        fail("a library");
}

/* Leaves room of 1,016 bytes between its frame and what it calls. */
void hop(void (*to)(void (*)(void)), void (*back)(void));
extern const char hop_return[];
__asm__(".globl hop\n"
        ".type hop, @function\n"
        "hop:\n"
        ".cfi_startproc\n"
        "sub $1016, %rsp\n"
        ".cfi_adjust_cfa_offset 1016\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "call *%rax\n"
        ".globl hop_return\n"
        "hop_return:\n"
        "add $1016, %rsp\n"
        ".cfi_adjust_cfa_offset -1016\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size hop, . - hop\n");

static void *handle;
static void (*work)(void (*)(void));

static unsigned long open_library(const char *path, int namespace) {
    struct link_map *map;
    handle = namespace ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : dlopen(path, RTLD_NOW);
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map)) {
        printf("%s\n", dlerror());
        exit(2);
    }
    void *found = dlsym(handle, "work");
    memcpy(&work, &found, sizeof work);
    return map->l_addr;
}

static unsigned long through_library(const char *path) {
    const unsigned long at = open_library(path, 0);
    for (int i = 0; i < CAPTURES; i++)
        hop(work, against_libgcc);
    dlclose(handle);
    return at;
}

/* sub $8, %rsp; call *%rdi; add $8, %rsp; ret */
static const unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3};
#define TO_RETURN 6

static uint32_t rule(void *user, uint64_t pc, struct uu_rule *rule) {
    (void)user, (void)pc;
    rule->size = sizeof *rule;
    rule->kind = UU_RULE_OFFSET;
    rule->reg = 7;
    rule->offset = 16;
    for (int i = 0; i < 6; i++)
        rule->slots[i] = UU_SAME;
    rule->slots[6] = -1;
    return 1;
}

static void take_the_place(int namespace, const char *path) {
    open_library(path, namespace);
    for (int i = 0; i < CAPTURES; i++) {
        hop(work, capture);
        if (words[2] != ((uint64_t)hop_return | (uint64_t)UU_FRAME_NATIVE << 56))
            fail("the library");
    }
    /* The frames: capture, work, hop. */
    const uint64_t returns = UU_FRAME_ADDRESS(words[1]);
    dlclose(handle);
    unsigned char *text = (unsigned char *)((returns - TO_RETURN) & ~4095ul);
    if (mmap(text, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != text) {
        perror("the library's place");
        exit(2);
    }
    unsigned char *begins = (unsigned char *)(returns - TO_RETURN);
    memcpy(begins, code, sizeof code);
    struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_RULE, .text = begins, .text_len = sizeof code, .rule = rule};
    if (uu_register_window(&window))
        exit(2);
    memcpy(&work, &begins, sizeof work);
    for (int i = 0; i < CAPTURES; i++) {
        hop(work, capture);
        const int same = stop == UU_STOP_COMPLETE && count > 4 && words[1] == (returns | (uint64_t)UU_FRAME_WINDOW << 56) &&
                         words[3] == ((uint64_t)hop_return | (uint64_t)UU_FRAME_NATIVE << 56);
        if (!same)
            fail("a window");
    }
    printf("taken 1\n");
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    if (!strcmp(argv[1], "guarded") && uu_handle_faults())
        return 2;
    signals = !strcmp(argv[1], "signal");
    if (strcmp(argv[2], "library")) {
        take_the_place(!strcmp(argv[2], "namespace"), argv[3]);
        return 0;
    }
    int taken = 0;
    for (int i = 0; i < ROUNDS; i++)
        taken += through_library(argv[3]) == through_library(argv[4]);
    printf("taken %d\n", taken);
    return 0;
}
