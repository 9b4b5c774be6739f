/* Captures of stacks that share their outer part with the last one's, and of the same stack twice, with guarded reads, so that the
   library may go along the thread's last chain; also through a library that makes room for another one at its place, which has other
   frames. Each is compared with what libgcc's unwinder says. Arguments: the two libraries, and a third one, whose frames
   have frame pointers. Prints the number of captures. */
#define _GNU_SOURCE
#include "uu.h"

#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST 128
#define DEPTH 11
#define NOINLINE __attribute__((noinline, noclone))

static unsigned long captures;
static unsigned seed = 1;

/* Both begin here, at different instructions: this function's own frame is not compared. */
NOINLINE static void compare(size_t capacity) {
    uint64_t ours[MOST];
    void *theirs[MOST];
    uint16_t stop = 0;
    const int expected = backtrace(theirs, MOST);
    for (int again = 0; again < 2; again++) {
        const size_t count = uu_capture(ours, capacity, NULL, &stop);
        const size_t most = (size_t)expected < capacity ? (size_t)expected : capacity;
        const uint16_t end = (size_t)expected <= capacity ? UU_STOP_COMPLETE : UU_STOP_BUFFER_FULL;
        if (count != most || stop != end) {
            printf("%zu frames of %zu, stop %u; libgcc has %d\n", count, capacity, stop, expected);
            exit(1);
        }
        for (size_t i = 1; i < count; i++)
            if (ours[i] != ((uint64_t)(uintptr_t)theirs[i] | (uint64_t)UU_FRAME_NATIVE << 56)) {
                printf("frame %zu is %#lx, libgcc has %p\n", i, (unsigned long)ours[i], theirs[i]);
                exit(1);
            }
        captures++;
    }
}

NOINLINE static void from_further_in(void) {
    volatile char room[40];
    room[seed % sizeof room] = 1;
    compare(MOST);
    room[0] = 2;
}

static unsigned go(unsigned depth, unsigned s);

/* A small frame; saved registers; one of variable size, with rbp; a realigned one. Each goes on twice. */
NOINLINE static unsigned small(unsigned depth, unsigned s) { return go(depth, s * 3) + go(depth, s + 1) + 1; }
NOINLINE static unsigned saves(unsigned depth, unsigned s) {
    unsigned a = s * 3, b = s ^ 5, c = s + 7, d = s / 3, e = s * s;
    unsigned r = go(depth, s) + go(depth, a);
    return r ^ a ^ b ^ c ^ d ^ e;
}
NOINLINE static unsigned varied(unsigned depth, unsigned s) {
    volatile unsigned char *room = alloca(16 + s % 200);
    room[s % 16] = 1;
    return go(depth, s + 2) + go(depth, s + room[s % 16]) + room[0];
}
NOINLINE static unsigned aligned(unsigned depth, unsigned s) {
    __attribute__((aligned(64))) volatile unsigned room[16];
    room[s & 15] = s;
    return go(depth, room[s & 15]) + go(depth, s + 5) + room[s & 15];
}

NOINLINE static unsigned go(unsigned depth, unsigned s) {
    seed = seed * 1103515245 + 12345;
    if (depth == DEPTH) {
        compare(seed >> 16 & 1 ? MOST : 2 + (seed >> 20) % 30);
        from_further_in();
        return s;
    }
    switch (seed >> 16 & 15) {
    case 0:
        return varied(depth + 1, s) + 1;
    case 1:
        return aligned(depth + 1, s) + 1;
    case 2:
    case 3:
    case 4:
    case 5:
        return saves(depth + 1, s) + 1;
    default:
        return small(depth + 1, s) + 1;
    }
}

static void from_library(void) { compare(MOST); }

static void *returns;
static uint64_t last[MOST];
static size_t last_count;
NOINLINE static void from_place(void) {
    uint16_t stop;
    returns = __builtin_return_address(0);
    for (int again = 0; again < 5; again++)
        last_count = uu_capture(last, MOST, NULL, &stop);
}

/* A read below the frames that will be pushed finds this. */
NOINLINE static void paint(uint64_t word) {
    volatile uint64_t room[256];
    for (size_t i = 0; i < sizeof room / sizeof room[0]; i++)
        room[i] = word;
}

/* Code of a window calls from the very address that a library called from until it was unloaded, and has another frame: of the first
   library nothing is left, though what else changes meanwhile is counted with the unloads. */
static int in_the_place_of(const char *plain, const char *framed) {
    void *library = dlopen(plain, RTLD_NOW), *other = dlopen(framed, RTLD_NOW);
    void (*call)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "call");
    char *code = dlsym(other, "call");
    ((void (*)(void (*)(void)))(void *)code)(from_place);
    const ptrdiff_t distance = (char *)returns - code;
    call(from_place);
    char *start = (char *)returns - distance, *page = (char *)((uintptr_t)start & ~(uintptr_t)4095);
    dlclose(library);
    uu_unmark_interpreter(page);
    if (mmap(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page)
        return 5;
    memcpy(start, code, 128);
    const struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_FRAME_POINTER, .text = page, .text_len = 8192};
    if (uu_register_window(&window))
        return 6;
    const size_t before = last_count;
    paint(UU_FRAME_ADDRESS(last[2]));
    ((void (*)(void (*)(void)))(void *)start)(from_place);
    /* One more word, as a window's frame has two. */
    if (last_count != before + 1 || UU_FRAME_KIND(last[1]) != UU_FRAME_WINDOW || UU_FRAME_ADDRESS(last[1]) != (uint64_t)(uintptr_t)returns) {
        printf("%zu words after %zu, the second is %#lx\n", last_count, before, (unsigned long)last[1]);
        return 7;
    }
    return 0;
}

int main(int argc, char **argv) {
    /* The first call loads libgcc. */
    void *here[2];
    backtrace(here, 2);
    if (argc < 4 || uu_handle_faults())
        return 2;
    if (go(0, 1) == 77)
        return 3;
    unsigned long same_place = 0;
    void *place = NULL;
    for (int i = 0; i < 200; i++) {
        void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
        void (*call)(void (*)(void)) = library ? (void (*)(void (*)(void)))dlsym(library, "call") : NULL;
        if (!call)
            return 4;
        same_place += (void *)call == place;
        place = (void *)call;
        call(from_library);
        dlclose(library);
    }
    const int failed = in_the_place_of(argv[1], argv[3]);
    if (failed)
        return failed;
    printf("%lu captures, %lu libraries at another's place\n", captures, same_place);
    return 0;
}
