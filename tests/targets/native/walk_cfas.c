/* The CFAs that uu_walk() gives, compared with those that the compiler says: of functions with and without a frame pointer,
   with an own stack size, of an interrupted function and the handler above it, of frames that are left out, and of stacks
   that are deeper than what is kept. Prints "ok". */
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
#define MOST 16384
#define CFA ((uint64_t)(uintptr_t)__builtin_dwarf_cfa())
#define KEEP __asm__ volatile("" : : : "memory")
static uint64_t frames[MOST], cfas[MOST];
static struct uu_request request;

/* Inlined, so that the first frame is the caller's. */
__attribute__((always_inline)) static inline void walk(const void *ucontext, uint32_t skip, uint32_t flags) {
    memset(&request, 0, sizeof request);
    memset(cfas, 0xff, sizeof cfas);
    request.size = sizeof request, request.ucontext = ucontext, request.skip = skip, request.flags = flags;
    request.frames = frames, request.cfas = cfas, request.capacity = MOST;
    CHECK(uu_walk(&request) == 0 && cfas[request.count] == UINT64_MAX);
}

static uint64_t of_main;

/* Three functions, walked twice: nothing of the first walk may be taken over without CFAs. */
__attribute__((noinline)) static void third(uint64_t first, uint64_t second) {
    for (uint32_t skip = 0; skip < 4; skip++) {
        walk(0, skip, 0);
        CHECK(request.stop == UU_STOP_COMPLETE && request.count > 4 - skip && !(request.doubt & ~UU_DOUBT_SETUP_DUE));
        uint64_t expected[] = {CFA, second, first, of_main};
        CHECK(memcmp(cfas, expected + skip, (4 - skip) * sizeof *cfas) == 0);
        for (uint32_t i = 1; i < request.count; i++)
            CHECK(i + 1 == request.count || cfas[i] > cfas[i - 1]);
    }
    /* Without a place for them, and by a program that knows the first fields only. */
    request.cfas = 0, request.skip = 0;
    CHECK(uu_walk(&request) == 0 && request.count > 4);
    request.size = offsetof(struct uu_request, cfas), request.cfas = (uint64_t *)1;
    CHECK(uu_walk(&request) == 0 && request.count > 4);
    request.size = sizeof request;
    CHECK(uu_walk(&request) == -EINVAL);
    request.cfas = cfas, request.frames = 0;
    CHECK(uu_walk(&request) == -EINVAL);
    KEEP;
}

__attribute__((noinline)) static void second(uint64_t first, size_t bytes) {
    memset(alloca(bytes), 1, bytes);
    third(first, CFA);
    KEEP;
}

__attribute__((noinline)) static void first(void) {
    second(CFA, (size_t)(rand() % 1000));
    KEEP;
}

/* The interrupted function's, from its handler: with a context, without one, and on another stack. */
static volatile uint64_t interrupted;
static volatile sig_atomic_t handled;
static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    walk(ucontext, 0, 0);
    uint32_t found = 0;
    for (uint32_t i = 0; i < request.count; i++)
        found += cfas[i] == interrupted;
    CHECK(request.stop == UU_STOP_COMPLETE && found == 1 && cfas[request.count - 2] > interrupted);
    walk(0, 0, 0);
    CHECK(request.stop == UU_STOP_COMPLETE && cfas[0] == CFA);
    found = 0;
    for (uint32_t i = 0; i < request.count; i++)
        found += cfas[i] == interrupted;
    CHECK(found == 1);
    handled++;
}

__attribute__((noinline)) static void raises(void) {
    interrupted = CFA;
    raise(SIGUSR1);
    KEEP;
}

/* Frames of an interpreter have none. */
static struct uu_frame_record *head;
__attribute__((noinline)) static void interpreter(uint32_t name) {
    struct uu_frame_record record, caller;
    uu_push_frame(&head, &caller, &caller, name, 1);
    uu_push_frame(&head, &record, &record, name, 2);
    walk(0, 0, 0);
    CHECK(UU_FRAME_KIND(frames[0]) == UU_FRAME_SEMANTIC && UU_FRAME_KIND(frames[2]) == UU_FRAME_SEMANTIC);
    CHECK(cfas[0] == 0 && cfas[1] == 0 && cfas[2] == CFA && cfas[3] == of_main);
    walk(0, 0, UU_WALK_NATIVE);
    CHECK(cfas[0] == CFA && cfas[1] == of_main);
    uu_pop_frame(&head, &record);
    uu_pop_frame(&head, &caller);
}

/* A stack of more frames than are kept: of the innermost ones and of the outermost ones. */
#define DEPTH 20000
static uint64_t of_level[DEPTH];
__attribute__((noinline)) static void level(int depth) {
    of_level[depth] = CFA;
    if (depth == 0) {
        walk(0, 0, 0);
        return;
    }
    level(depth - 1);
    KEEP;
}

static void deep(void) {
    level(DEPTH - 1);
    uint32_t omitted = 0;
    size_t frame = 0, at_level = 0, after = 0;
    for (size_t word = 0; word < request.words; word++, frame++) {
        if (UU_FRAME_KIND(frames[word]) == UU_FRAME_OMITTED) {
            omitted = (uint32_t)frames[word], at_level += omitted;
            CHECK(cfas[frame] == 0);
            continue;
        }
        CHECK(at_level >= DEPTH || cfas[frame] == of_level[at_level]);
        at_level++;
        after += omitted != 0;
    }
    CHECK(frame == request.count && omitted > DEPTH - 5000 && at_level > DEPTH && after > 8);
}

int main(void) {
    of_main = CFA;
    for (int guarded = 0; guarded < 2; guarded++) {
        first();
        static char stack[65536];
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        CHECK(!sigaltstack(&alternate, 0));
        for (int flags = 0; flags < 2; flags++) {
            struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | (flags ? SA_ONSTACK : 0)};
            CHECK(!sigaction(SIGUSR1, &action, 0));
            raises();
        }
        deep();
        CHECK(!uu_handle_faults());
    }
    CHECK(handled == 4 && uu_setup() > 1);
    uint32_t name = uu_intern("function", "a.lang", 1);
    CHECK(name && !uu_mark_interpreter((const void *)interpreter, 0) && !uu_publish_frames(&head));
    interpreter(name);
    puts("ok");
    return 0;
}
