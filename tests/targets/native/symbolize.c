/* Captures a stack with inlined functions, and prints the functions of its frames as uu_symbolize() gives them, one a
   line: frame, address in the file, object, "i" where inlined, function, file and line; or the words of `problem`.

   "removed": its own file is removed before. LIBRARY REPLACEMENT: a library's file is replaced while it is loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uu.h>

#define MOST 64
static uint64_t frames[MOST];
static size_t words;
static volatile int turns = 1;

static inline __attribute__((always_inline)) int innermost(int n) {
    words = uu_capture(frames, MOST, 0, 0);
    return n + turns;
}
static inline __attribute__((always_inline)) int middle(int n) {
    if (turns > 7)
        return n;
    return innermost(n + turns) * 3;
}
__attribute__((noinline, noclone)) static int outermost(int n) {
    int sum = turns;
    for (int i = 0; i < turns; i++)
        sum += middle(n + i);
    return sum;
}
static int called(const void *a, const void *b) { return outermost(*(const int *)a + *(const int *)b) - turns; }

static int print(void) {
    const struct uu_symbol *symbols = 0;
    int count = uu_symbolize(frames, words, &symbols);
    for (const struct uu_symbol *s = symbols; s; s = s->next, count--) {
        struct uu_frame_info info = {.size = sizeof info};
        if (uu_describe(&frames[s->frame], &info) < 1 || info.address != s->address || info.kind != s->kind)
            return printf("frame %u is another one\n", s->frame);
        if (s->kind == UU_FRAME_NATIVE && strcmp(info.file, s->object) != 0)
            return printf("frame %u is in another object\n", s->frame);
        if (s->start > s->address)
            return printf("frame %u begins after its address\n", s->frame);
        printf("%u|%#lx|%s|%s|%s|%s|%u|%s|%s\n", s->frame, (unsigned long)info.file_address,
               info.flags & UU_INFO_EXACT ? "exact" : "after", s->flags & UU_SYMBOL_INLINED ? "i" : "", s->function,
               s->file, s->line, s->language, s->problem);
    }
    uu_symbols_free(symbols);
    return count;
}

/* The kernel's object has no file: its functions have names in memory. */
static int vdso(void) {
    void *library = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, "__vdso_clock_gettime") : 0;
    if (!function)
        return 0; /* this machine has none */
    uint64_t frame = (uint64_t)UU_FRAME_NATIVE << 56 | UU_FRAME_EXACT | (uint64_t)(uintptr_t)function;
    const struct uu_symbol *symbols = 0;
    int wrong = uu_symbolize(&frame, 1, &symbols) != 1 || !strstr(symbols->function, "clock_gettime") ||
                symbols->start != (uint64_t)(uintptr_t)function || *symbols->problem;
    if (wrong && symbols)
        printf("vdso: %s in %s, %s\n", symbols->function, symbols->object, symbols->problem);
    uu_symbols_free(symbols);
    return wrong;
}

/* Arguments that are refused, and lists that are empty. */
static int refusals(void) {
    const struct uu_symbol *symbols = (const void *)8;
    uint64_t none = 0, semantic = (uint64_t)UU_FRAME_SEMANTIC << 56, native = (uint64_t)UU_FRAME_NATIVE << 56 | 0x10;
    int failed = 0;
    errno = 77;
    failed |= uu_symbolize(0, 1, &symbols) != -EINVAL || uu_symbolize(&native, 1, 0) != -EINVAL;
    failed |= uu_symbolize((const uint64_t *)((const char *)frames + 4), 1, &symbols) != -EINVAL;
    failed |= uu_symbolize(&none, 1, &symbols) != -EINVAL || uu_symbolize(&semantic, 1, &symbols) != -EINVAL;
    failed |= uu_symbolize(0, 0, &symbols) != -EINVAL;
    failed |= symbols != (const void *)8;
    failed |= uu_symbolize(&native, 0, &symbols) != 0 || symbols;
    /* An address in no object: a symbol without words. */
    failed |= uu_symbolize(&native, 1, &symbols) != 1 || !symbols || symbols->next || *symbols->function ||
              *symbols->object || symbols->address != 0x10;
    uu_symbols_free(symbols);
    uu_symbols_free(0);
    return failed || errno != 77;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "absent") == 0)
        return uu_symbolize(frames, 0, &(const struct uu_symbol *){0}) != -ENOENT;
    if (argc == 2 && unlink(argv[0]))
        return 2;
    int two[2] = {2, 1};
    qsort(two, 2, sizeof *two, called);
    if (argc == 3) {
        void *library = dlopen(argv[1], RTLD_NOW);
        union {
            void *object;
            int (*function)(int (*)(const void *, const void *));
        } through = {library ? dlsym(library, "through") : 0};
        if (!through.object || rename(argv[2], argv[1]))
            return 3;
        through.function(called);
    }
    return print() || refusals() || vdso();
}
