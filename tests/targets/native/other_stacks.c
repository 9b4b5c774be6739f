/* Calls on other stacks, below and above the caller's, by functions whose unwind data leads back: the CFA counts from
   rbp, from rbx, or is read from the new stack; nested, and with a stack inside of a caller's frame.
   `check`: at each instruction of such a call, the stack is captured, twice, and walked; it must be whole, and end with
   the callers that a capture before had. Where the innermost function runs, libgcc's unwinder must say the same.
   `burn MS`: the innermost function works; `wait`: it says so, and waits to be ended; `overwritten`: the saved stack
   pointer leads elsewhere. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <uu.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" : : : "memory")
#define MOST 512
#define TRAP_FLAG 0x100
#define ROOM (1 << 16)

typedef long Function(long);
/* Calls `function` with `argument` on the stack that ends at `top`. */
typedef long Switch(void *top, Function *function, long argument);
Switch by_rbp, by_rbx, by_word, by_exchange;

__asm__(".text\n.p2align 4\n.type by_rbp, @function\nby_rbp:\n"
        ".cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset %rbp, -16\n"
        " mov %rsp, %rbp\n .cfi_def_cfa_register %rbp\n"
        " mov %rdi, %rsp\n mov %rdx, %rdi\n call *%rsi\n"
        " mov %rbp, %rsp\n pop %rbp\n .cfi_def_cfa %rsp, 8\n ret\n .cfi_endproc\n.size by_rbp, . - by_rbp\n"

        ".p2align 4\n.type by_rbx, @function\nby_rbx:\n"
        ".cfi_startproc\n push %rbx\n .cfi_def_cfa_offset 16\n .cfi_offset %rbx, -16\n"
        " mov %rsp, %rbx\n .cfi_def_cfa_register %rbx\n"
        " lea -32(%rdi), %rsp\n mov %rdx, %rdi\n call *%rsi\n"
        " mov %rbx, %rsp\n .cfi_def_cfa_register %rsp\n pop %rbx\n .cfi_def_cfa_offset 8\n ret\n"
        " .cfi_endproc\n.size by_rbx, . - by_rbx\n"

        /* The CFA is the word at rsp, plus 8. */
        ".p2align 4\n.type by_word, @function\nby_word:\n"
        ".cfi_startproc\n mov %rsp, -16(%rdi)\n sub $16, %rdi\n mov %rdi, %rsp\n"
        " .cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 8\n mov %rdx, %rdi\n call *%rsi\n"
        " mov (%rsp), %rsp\n .cfi_def_cfa %rsp, 8\n ret\n .cfi_endproc\n.size by_word, . - by_word\n"

        ".p2align 4\n.type by_exchange, @function\nby_exchange:\n"
        ".cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset %rbp, -16\n"
        " mov %rdi, %rbp\n xchg %rbp, %rsp\n .cfi_def_cfa_register %rbp\n"
        " mov %rdx, %rdi\n call *%rsi\n"
        " mov %rbp, %rsp\n .cfi_def_cfa_register %rsp\n pop %rbp\n .cfi_def_cfa_offset 8\n ret\n"
        " .cfi_endproc\n.size by_exchange, . - by_exchange\n");

static uint64_t callers[MOST];
static size_t count_of_callers;
static volatile int stepping;
static unsigned long stacks, whole;
/* What the innermost function does. */
static const char *what;
static long milliseconds;
static char areas[3][ROOM] __attribute__((aligned(64)));

static void end_wrong(const char *why, const uint64_t *frames, size_t count, unsigned stop) {
    printf("%s, stop %u:\n", why, stop);
    for (size_t i = 0; i < count; i++)
        printf("  %#lx\n", (unsigned long)UU_FRAME_ADDRESS(frames[i]));
    printf("callers:\n");
    for (size_t i = 0; i < count_of_callers; i++)
        printf("  %#lx\n", (unsigned long)callers[i]);
    fflush(stdout);
    _exit(1);
}

NOINLINE static void check(const void *context) {
    static uint64_t frames[MOST], again[MOST];
    uint16_t stop = 0, stop_again = 0;
    const size_t count = uu_capture(frames, MOST, context, &stop);
    stacks++;
    if (stop != UU_STOP_COMPLETE)
        end_wrong("not whole", frames, count, stop);
    for (size_t i = 0; i < count_of_callers; i++)
        if (count < count_of_callers + 1 || UU_FRAME_ADDRESS(frames[count - 1 - i]) != callers[count_of_callers - 1 - i])
            end_wrong("other callers", frames, count, stop);
    whole++;
    if (uu_capture(again, MOST, context, &stop_again) != count || stop_again != stop || (context && memcmp(again, frames, count * sizeof *frames)))
        end_wrong("another one the second time", again, count, stop_again);
    struct uu_request request = {.size = sizeof request, .ucontext = context, .frames = again, .capacity = MOST};
    if (uu_walk(&request) || request.stop != stop || request.words != count || (context && memcmp(again, frames, count * sizeof *frames)))
        end_wrong("another walk", again, request.words, request.stop);
}

static void on_trap(int number, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    (void)number, (void)info;
    if (stepping)
        check(at);
    else
        at->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

NOINLINE static void compare_with_libgcc(void) {
    void *theirs[MOST];
    uint64_t ours[MOST];
    uint16_t stop = 0;
    const int expected = backtrace(theirs, MOST);
    const size_t count = uu_capture(ours, MOST, NULL, &stop);
    if (count != (size_t)expected || stop != UU_STOP_COMPLETE)
        end_wrong("libgcc has another number", ours, count, stop);
    for (int i = 1; i < expected; i++)
        if (UU_FRAME_ADDRESS(ours[i]) != (uintptr_t)theirs[i])
            end_wrong("libgcc has another one", ours, count, stop);
}

NOINLINE static long innermost(long depth) {
    const int stepped = stepping;
    stepping = 0;
    if (!strcmp(what, "check")) {
        compare_with_libgcc();
        check(NULL);
    } else if (!strcmp(what, "burn")) {
        struct timespec now, end;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        end.tv_sec += milliseconds / 1000, end.tv_nsec += milliseconds % 1000 * 1000000;
        do
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    } else if (!strcmp(what, "wait")) {
        printf("waiting\n");
        fflush(stdout);
        for (;;)
            pause();
    } else if (!strcmp(what, "show")) {
        uint64_t frames[MOST];
        uint16_t stop = 0;
        const size_t count = uu_capture(frames, MOST, NULL, &stop);
        printf("%zu frames, stop %u\n", count, stop);
        fflush(stdout);
    }
    if (stepped) {
        stepping = 1;
        __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
    }
    return depth;
}

/* From the lowest area to the highest, and to the one between. */
static Switch *chosen;
NOINLINE static long third(long a) {
    const long r = by_rbp(areas[1] + ROOM, innermost, a + 1);
    KEEP;
    return r + 1;
}
NOINLINE static long second(long a) {
    const long r = chosen(areas[2] + ROOM, third, a + 1);
    KEEP;
    return r + 1;
}
NOINLINE static long nested(long a) {
    const long r = chosen(areas[0] + ROOM, second, a + 1);
    KEEP;
    return r + 1;
}
/* On a stack inside of this function's frame, and thus above all frames that it calls; each by its name. */
NOINLINE static long in_frame(int kind) {
    char room[ROOM] __attribute__((aligned(64)));
    room[0] = (char)kind;
    KEEP;
    long r = 0;
    switch (kind) {
        case 0: r = by_rbp(room + ROOM, innermost, 1); break;
        case 1: r = by_rbx(room + ROOM, innermost, 1); break;
        case 2: r = by_word(room + ROOM, innermost, 1); break;
        default: r = by_exchange(room + ROOM, innermost, 1); break;
    }
    KEEP;
    return r + room[0];
}
/* The saved stack pointer of the frame on the lowest area leads to another function's dead frame. */
NOINLINE static long misleads(long a) {
    uint64_t *top = (uint64_t *)(areas[2] + ROOM);
    uint64_t *dead = (uint64_t *)(areas[0] + ROOM / 2);
    dead[0] = 0;
    dead[1] = (uint64_t)(uintptr_t)__builtin_return_address(0);
    top[-2] = (uint64_t)(uintptr_t)(dead + 1);
    const long r = innermost(a);
    KEEP;
    _exit(r == 0);
}

NOINLINE static void begin(void) {
    uint64_t frames[MOST];
    const size_t count = uu_capture(frames, MOST, NULL, NULL);
    count_of_callers = count - 2;
    for (size_t i = 0; i < count_of_callers; i++)
        callers[i] = UU_FRAME_ADDRESS(frames[i + 2]);
    stepping = 1;
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
}
NOINLINE static void end(void) {
    stepping = 0;
    KEEP;
}

NOINLINE static void run(void) {
    Switch *const all[] = {by_rbp, by_rbx, by_word, by_exchange};
    const int steps = !strcmp(what, "check");
    for (int kind = 0; kind < 4; kind++) {
        if (steps)
            begin();
        chosen = all[kind];
        nested(1);
        if (!strcmp(what, "check"))
            in_frame(kind);
        if (steps)
            end();
    }
}

static void *in_thread(void *ignored) {
    run();
    return ignored;
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (count < 2 || sigaction(SIGTRAP, &action, NULL))
        return 2;
    what = arguments[1];
    milliseconds = count > 2 ? atol(arguments[2]) / 4 : 0;
    if (!strcmp(what, "overwritten")) {
        what = "show";
        by_word(areas[2] + ROOM, misleads, 1);
        return 3;
    }
    run();
    pthread_t thread;
    if (!strcmp(what, "check") && (pthread_create(&thread, NULL, in_thread, NULL) || pthread_join(thread, NULL)))
        return 4;
    printf("%lu stacks, %lu whole\n", stacks, whole);
    return 0;
}
