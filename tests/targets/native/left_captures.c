/* Captures that are interrupted while they look at windows, and then left by siglongjmp, or suspended since the handler swaps contexts. Grace periods
   end when such a capture has ended, and not before. Prints what each step returned. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <uu.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { PAGE = 4096, STACK = 1 << 18, COROUTINES = 3 };

/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static char *pages;
static sigjmp_buf back;
static ucontext_t contexts[COROUTINES];
static volatile int now, next, jumps, armed;
static size_t counts[COROUTINES];
static uint16_t stops[COROUTINES];

static uint32_t rule(void *user, uint64_t pc, struct uu_rule *rule) {
    (void)user, (void)pc;
    if (armed) {
        armed = 0;
        raise(SIGUSR1); /* the signal of a timer, that comes just now */
    }
    rule->kind = UU_RULE_OFFSET;
    rule->reg = 6;
    rule->offset = 16;
    rule->slots[1] = -2;
    return 1;
}

static void go_to(int other) {
    const int own = now;
    now = other;
    swapcontext(&contexts[own], &contexts[other]);
}

static void on_signal(int number) {
    (void)number;
    if (jumps)
        siglongjmp(back, 1);
    go_to(next);
}

static void set_window(int page) {
    struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_RULE, .text = pages + page * PAGE, .text_len = sizeof code, .rule = rule};
    const int result = uu_register_window(&window);
    if (result) {
        printf("window %d: %d\n", page, result);
        exit(3);
    }
}

static NOINLINE void capture(void) {
    uint64_t words[64];
    counts[now] = uu_capture(words, 64, 0, &stops[now]);
}

/* Captures through the window's code. */
static NOINLINE void through(int page) {
    void (*run)(void (*)(void));
    char *const at = pages + page * PAGE;
    memcpy(&run, &at, sizeof run);
    run(capture);
}

/* As any other thread finds it. */
static void *ask(void *window) {
    static int result;
    static uint64_t ticket;
    if (window && uu_unlink_window(window, &ticket))
        exit(4);
    result = uu_synchronize(ticket, 1000000);
    return &result;
}

static int elsewhere(void *window) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, 0, ask, window) || pthread_join(thread, &result))
        exit(5);
    return *(int *)result;
}

static NOINLINE int deeper(int depth) {
    volatile char room[4096];
    room[0] = 1;
    if (depth)
        return deeper(depth - 1) + room[0] - 1;
    struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_OPAQUE, .text = pages + 7 * PAGE, .text_len = 16};
    const int result = uu_register_window(&window);
    return result ? result : uu_unregister_window(window.text);
}

static void left(void) {
    set_window(0), set_window(1);
    jumps = armed = 1;
    if (!sigsetjmp(back, 1))
        through(0);
    uu_capture_abandoned();
    printf("left: elsewhere %d deeper %d\n", elsewhere(pages + PAGE), deeper(6));
    elsewhere(pages);
    jumps = 0;
    uu_capture_abandoned();
}

static void expect(int which) {
    printf("capture %d: %s\n", which, counts[which] > 4 && stops[which] <= UU_STOP_SWITCHED_STACK ? "whole" : "cut");
}

/* The first is suspended in a capture, then the second in another, then the first goes on, and then the second. */
static void first(void) {
    next = 2, armed = 1;
    through(0);
    expect(1);
    printf("the second is suspended: %d\n", elsewhere(0));
    go_to(2);
    abort();
}

static void second(void) {
    through(2); /* not interrupted */
    printf("the first is suspended: %d\n", elsewhere(pages + 2 * PAGE));
    next = 1, armed = 1;
    through(1);
    expect(2);
    printf("both are over: %d\n", elsewhere(0));
    go_to(0);
}

static void suspended(int order) {
    for (int page = 0; page < 3; page++)
        set_window(page);
    for (int i = 1; i < COROUTINES; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = pages + 16 * PAGE + (i - 1 ? !order : order) * STACK;
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], i == 1 ? first : second, 0);
    }
    printf("order %d\n", order);
    go_to(1);
    for (int page = 0; page < 2; page++)
        if (uu_unregister_window(pages + page * PAGE))
            exit(6);
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    pages = mmap(0, 16 * PAGE + 2 * STACK, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || sigaction(SIGUSR1, &action, 0))
        return 2;
    for (int page = 0; page < 3; page++)
        memcpy(pages + page * PAGE, code, sizeof code);
    left();
    suspended(0);
    suspended(1);
    left();
    return 0;
}
