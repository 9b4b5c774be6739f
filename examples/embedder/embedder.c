/* embedder - a program with an interpreter of its own that `uu record` shows, without a plugin.
 *
 *     cc -O2 -pthread -Itarget/uu/include -o embedder examples/embedder/embedder.c -ldl
 *     target/uu/bin/uu record --explicit -- ./embedder
 *
 * It is not linked with the library: UU_OPTIONAL finds it where it is, which is in a program that is being recorded,
 * and does nothing elsewhere.
 *
 * The interpreter evaluates expressions of a tiny language, each call of a function in a C call of its own; or, for
 * tail calls, in the C call that is there, with another record. Where the language says "snap", the interpreter prints
 * its stack and sends itself SIGPROF, for which `uu record --explicit` takes a sample at once: so both can be
 * compared. */
#define UU_OPTIONAL
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <uu.h>

/* A function of the language: what it does, line by line. */
enum action { NOTHING, CALL, TAIL_CALL, CALL_THROUGH_C, SPIN, SNAP };
struct step { enum action action; int function; };
struct function {
    const char *name;
    uint32_t first_line;
    struct step steps[4];
    uint32_t id; /* of uu_intern */
};

static struct function program[] = {
    {"main", 1, {{CALL, 1}, {CALL_THROUGH_C, 2}, {TAIL_CALL, 1}}, 0},
    {"middle", 10, {{NOTHING, 0}, {CALL, 2}, {CALL_THROUGH_C, 3}}, 0},
    {"leaf", 20, {{SPIN, 0}, {SNAP, 0}}, 0},
    {"tail", 30, {{NOTHING, 0}, {TAIL_CALL, 2}}, 0},
};

/* One for each thread. */
struct vm { struct uu_frame_record *frames; };

static void run(struct vm *vm, struct function *function);

__attribute__((noinline)) static void through_c(struct vm *vm, struct function *function) {
    run(vm, function);
    __asm__ volatile(""); /* a frame of its own, after the call */
}

__attribute__((noinline)) static void snap(struct vm *vm) {
    char text[512];
    int n = snprintf(text, sizeof text, "stack");
    for (struct uu_frame_record *r = vm->frames; r; r = r->outer) {
        const char *name = "?";
        for (size_t f = 0; f < sizeof program / sizeof *program; f++)
            if (program[f].id == r->name)
                name = program[f].name;
        n += snprintf(text + n, sizeof text - (size_t)n, " %s:%u", name, r->line);
    }
    puts(text);
    fflush(stdout);
    raise(SIGPROF);
}

__attribute__((noinline)) static void spin(void) {
    for (volatile int i = 0; i < 200000; i++)
        ;
}

/* The loop. Its range is found by its unwind information; copies that the compiler makes of it would be other ranges. */
__attribute__((noinline, noclone)) static void run(struct vm *vm, struct function *function) {
    struct uu_frame_record record[8]; /* tail calls show, up to a depth, as their callers' callees */
    int depth = 0;
    uu_push_frame(&vm->frames, &record[0], record, function->id, function->first_line);
    for (int step = 0; step < 4; step++) {
        struct step *s = &function->steps[step];
        record[depth].line = function->first_line + (uint32_t)step;
        switch (s->action) {
        case NOTHING: break;
        case CALL: run(vm, &program[s->function]); break;
        case CALL_THROUGH_C: through_c(vm, &program[s->function]); break;
        case SPIN: spin(); break;
        case SNAP: snap(vm); break;
        case TAIL_CALL:
            if (depth == 7)
                abort();
            function = &program[s->function];
            uu_push_frame(&vm->frames, &record[++depth], record, function->id, function->first_line);
            step = -1;
            break;
        }
    }
    while (depth >= 0)
        uu_pop_frame(&vm->frames, &record[depth--]);
}

static int rounds;

static void *thread(void *unused) {
    struct vm vm = {0};
    uu_optional_publish_frames(&vm.frames);
    for (int i = 0; i < rounds; i++)
        run(&vm, &program[0]);
    uu_optional_publish_frames(0); /* vm goes */
    return unused;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 10;
    signal(SIGPROF, SIG_IGN); /* when no recorder runs */
    int marked = uu_optional_mark_interpreter((const void *)(uintptr_t)run, 0);
    for (size_t f = 0; f < sizeof program / sizeof *program; f++) {
        program[f].id = uu_optional_intern(program[f].name, "prog.lang", program[f].first_line);
        if (program[f].id == 0)
            program[f].id = (uint32_t)f + 1; /* no library is there */
    }
    thread(0);
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    printf("marked %d\n", marked);
    return 0;
}
