/* tracer - where was a real-time loop when it missed its deadline? A timer's handler, in which everything is blocked and
 * nothing may take long, sees that a period is overdue: it writes down the time, and asks for the stack by a cookie. The
 * stack is taken when the handler has returned, and comes with that cookie.
 *
 *     cc -O2 -g -Itarget/uu/include -o tracer examples/tracer/tracer.c -Ltarget/uu/lib -luunwind -Wl,-rpath,target/uu/lib
 *     ./tracer
 *
 * Events and stacks are written to memory that was there before, and put together when the program has time for it: that
 * is how a tracer with a ring for each would do it. An event whose stack never comes has a void cookie. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <uu.h>

#define BUDGET 4000000 /* nanoseconds that a period may take */
enum { EVENTS = 64, WORDS = 256 };
static struct { uint64_t cookie; long late; int period; } events[EVENTS];
static struct { uint64_t cookie, words[WORDS]; size_t count; } stacks[EVENTS];
static atomic_int n_events, n_stacks, period;
static _Atomic long begun; /* when the period began; 0: between two, or it was reported */
static int client;

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* The handler: an event, and a request. */
static void on_timer(int number) {
    (void)number;
    long since = begun, late = now() - since - BUDGET;
    if (since == 0 || late < 0 || n_events == EVENTS)
        return;
    events[n_events].late = late, events[n_events].period = period;
    events[n_events++].cookie = uu_trigger(client);
    begun = 0;
}

/* A moment later, in the interrupted thread: the stack. */
static void deliver(void *user, const struct uu_delivery *d) {
    (void)user;
    if (n_stacks == EVENTS)
        return;
    stacks[n_stacks].cookie = d->cookie;
    stacks[n_stacks].count = d->words < WORDS ? d->words : WORDS;
    memcpy(stacks[n_stacks].words, d->frames, 8 * stacks[n_stacks].count);
    n_stacks++;
}

__attribute__((noinline)) static void rebuilds_table(void) {
    while (begun) /* far too long */
        ;
}

__attribute__((noinline)) static void runs_period(int number) {
    period = number;
    begun = now();
    if (number % 8 == 5)
        rebuilds_table();
    begun = 0;
}

static void print(uint64_t cookie) {
    for (int i = 0; i < n_stacks; i++) {
        const struct uu_symbol *symbols = 0;
        if (stacks[i].cookie != cookie)
            continue;
        if (uu_symbolize(stacks[i].words, stacks[i].count, &symbols) < 0)
            printf("    %zu words without names\n", stacks[i].count);
        for (const struct uu_symbol *s = symbols; s; s = s->next)
            printf("    %s (%s:%u)\n", *s->function ? s->function : s->object, s->file, s->line);
        uu_symbols_free(symbols);
        return;
    }
    printf("    no stack: %s\n", uu_cookie_is_pending(cookie) == 1 ? "still to come" : "void");
}

int main(void) {
    if (uu_setup() < 0 || (client = uu_client_register(deliver, 0)) < 0)
        return 2;
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    if (sigaction(SIGALRM, &action, 0) || setitimer(ITIMER_REAL, &every, 0))
        return 2;
    for (int i = 0; i < 24; i++)
        runs_period(i);
    setitimer(ITIMER_REAL, &never, 0);
    for (int i = 0; i < n_events; i++) {
        printf("period %d was %ld us late (cookie %llx):\n", events[i].period, events[i].late / 1000,
               (unsigned long long)events[i].cookie);
        print(events[i].cookie);
    }
    printf("%llu lost\n", (unsigned long long)uu_triggers_lost());
    return 0;
}
