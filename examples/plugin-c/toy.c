/* toy - an interpreter whose frames its plugins show (toy_plugin.c here, and the one in ../plugin-rust).
 *
 *     cc -O2 -o toy examples/plugin-c/toy.c
 *     cc -O2 -shared -fPIC -nostartfiles -Wl,-z,now -Itarget/uu/include -o toy_plugin.so examples/plugin-c/toy_plugin.c
 *     UU_PLUGINS=./toy_plugin.so target/uu/bin/uu record --explicit -- ./toy
 *
 * It runs a small program that calls itself, and C, and through C the language again. Where the program says SNAP, the
 * interpreter prints its own stack and sends itself SIGPROF, for which `uu record --explicit` takes a sample at once:
 * so both can be compared. With a second argument, it waits there for a line on its standard input, so that `uu dump`
 * can be compared, too.
 *
 * Nothing here knows of uu. That is the point of a plugin. */
#include "toy.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* PUSH n; ARG; ADD; LESS; JUMP_IF_ZERO offset; CALL f; CALL_C f (C calls f); SNAP; SPIN n; POP; RETURN */
enum { PUSH, ARG, ADD, LESS, JUMP_IF_ZERO, CALL, CALL_C, SNAP, SPIN, POP, RETURN };

struct toy_vm toy_vm;

static const struct toy_function functions[3];
static int64_t toy_call(const struct toy_function *function, int64_t argument);

/* A C function between two activations of the interpreter. */
__attribute__((noinline)) static int64_t through_c(const struct toy_function *function, int64_t argument) {
    int64_t result = toy_call(function, argument);
    return result + 1;
}

static int waits;

__attribute__((noinline)) static void snap(void) {
    printf("stack");
    for (struct toy_frame *f = toy_vm.frame; f; f = f->outer)
        printf(" %s:%d", f->function->name, (int)(f->function->first_line + f->function->lines[f->ip - f->function->code]));
    printf("\n");
    fflush(stdout);
    raise(SIGPROF);
    while (waits && getchar() != '\n' && !feof(stdin))
        ;
}

__attribute__((noinline)) static int64_t spin(int64_t rounds) {
    for (volatile int64_t i = 0; i < rounds; i++)
        ;
    return rounds;
}

static struct toy_frame *push(struct toy_frame *frame, const struct toy_function *function, int64_t argument, void *activation) {
    frame->outer = toy_vm.frame;
    frame->function = function;
    frame->ip = function->code;
    frame->activation = activation;
    frame->argument = argument;
    /* An interruption here must find either the old chain or the new frame whole. */
    __atomic_signal_fence(__ATOMIC_RELEASE);
    toy_vm.frame = frame;
    return frame;
}

/* The loop. Calls within the language go on in the same C call, with a frame from the pool. */
__attribute__((noinline)) int64_t toy_run(const struct toy_function *function, int64_t argument) {
    struct toy_frame pool[64];
    int64_t stack[256];
    int depth = 0, top = 0;
    struct toy_frame *f = push(&pool[0], function, argument, pool);
    for (;;) {
        const int32_t *ip = f->ip;
        int next = 2;
        switch (ip[0]) {
        case PUSH: stack[top++] = ip[1]; break;
        case ARG: stack[top++] = f->argument; next = 1; break;
        case ADD: top--, stack[top - 1] += stack[top]; next = 1; break;
        case LESS: top--, stack[top - 1] = stack[top - 1] < stack[top]; next = 1; break;
        case JUMP_IF_ZERO: next = stack[--top] == 0 ? ip[1] : 2; break;
        case CALL:
            if (depth == 63 || top > 200)
                abort();
            f = push(&pool[++depth], &functions[ip[1]], stack[--top], pool);
            continue;
        case CALL_C: stack[top - 1] = through_c(&functions[ip[1]], stack[top - 1]); break;
        case SNAP: snap(); next = 1; break;
        case SPIN: spin(ip[1]); break;
        case POP: top--; next = 1; break;
        case RETURN: {
            struct toy_frame *done = f;
            toy_vm.frame = f->outer;
            if (depth-- == 0)
                return stack[top - 1];
            f = done->outer;
            next = 2; /* after the CALL */
            break;
        }
        }
        f->ip += next;
    }
}

/* How C calls the language. In a stack it says nothing that the frames of the language do not say: it is glue. */
__attribute__((noinline)) static int64_t toy_call(const struct toy_function *function, int64_t argument) {
    struct toy_frame *outer = toy_vm.frame;
    int64_t result = toy_run(function, argument);
    if (toy_vm.frame != outer)
        abort();
    return result;
}

/*  1  function main(n)          8  function down(n)        15  function leaf(n)
 *  2    down(n)                 9    if n < 1              16    spin
 *  3    c: leaf(n)             10      return leaf(n)      17    snap
 *  4    return 0               11    if n < 3              18    return n
 *                              12      return c: down(n-1) 
 *                              13    return down(n-1)                                         */
static const int32_t main_code[] = {ARG, CALL, 1, POP, ARG, CALL_C, 2, POP, PUSH, 0, RETURN};
static const uint8_t main_lines[] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3};
static const int32_t down_code[] = {ARG, PUSH, 1, LESS, JUMP_IF_ZERO, 6, ARG, CALL, 2, RETURN,
                                    ARG, PUSH, 3, LESS, JUMP_IF_ZERO, 9, ARG, PUSH, -1, ADD, CALL_C, 1, RETURN,
                                    ARG, PUSH, -1, ADD, CALL, 1, RETURN};
static const uint8_t down_lines[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5};
static const int32_t leaf_code[] = {SPIN, 200000, SNAP, ARG, RETURN};
static const uint8_t leaf_lines[] = {1, 1, 2, 3, 3};
static const struct toy_function functions[3] = {
    {"main", "prog.toy", 4, 8, 1, 1, main_code, main_lines, sizeof main_lines},
    {"down", "prog.toy", 4, 8, 8, 2, down_code, down_lines, sizeof down_lines},
    {"leaf", "prog.toy", 4, 8, 15, 3, leaf_code, leaf_lines, sizeof leaf_lines},
};

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    int64_t sum = 0;
    waits = argc > 2;
    signal(SIGPROF, SIG_IGN); /* when no recorder runs */
    for (int i = 0; i < rounds; i++)
        sum += toy_call(&functions[0], i % 8);
    printf("sum %lld\n", (long long)sum);
    return 0;
}
