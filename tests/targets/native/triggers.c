/* uu_trigger(): where the stack is taken, who gets it, and what becomes of cookies when threads end, fork and execute
   other programs. Each part forces one race of the protocol. Prints "ok". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); fflush(stdout); _exit(1); } } while (0)
#define STAYS __attribute__((noinline, noipa, visibility("default")))
#define MOST 512

/* What a client was given last, and how often. */
struct given {
    int client;
    atomic_uint calls;
    struct uu_delivery last;
    uint64_t frames[MOST];
    void (*meanwhile)(void);
};
static struct given one, two;

static void deliver(void *user, const struct uu_delivery *d) {
    struct given *g = user;
    g->last = *d;
    memcpy(g->frames, d->frames, 8 * (d->words < MOST ? d->words : MOST));
    g->calls++;
    if (g->meanwhile)
        g->meanwhile();
}

/* The names of the program's functions in a stack, leaf first, each with a space after it. */
static const char *names(const struct given *g) {
    static char out[4096];
    *out = 0;
    for (size_t i = 0; i < g->last.words; i++) {
        uint64_t at = UU_FRAME_ADDRESS(g->frames[i]) - !(g->frames[i] & UU_FRAME_EXACT);
        Dl_info info;
        if (dladdr((void *)at, &info) && info.dli_sname && strncmp(info.dli_sname, "in_", 3) == 0)
            strcat(strcat(out, info.dli_sname), " ");
    }
    return out;
}
static int starts_in(const struct given *g, const char *function) {
    Dl_info info;
    uint64_t at = UU_FRAME_ADDRESS(g->frames[0]) - !(g->frames[0] & UU_FRAME_EXACT);
    return g->last.words && dladdr((void *)at, &info) && info.dli_sname && strcmp(info.dli_sname, function) == 0;
}
static void set_mask(int how) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(how, &all, 0);
}

STAYS uint64_t in_asks(int client) {
    uint64_t cookie = uu_trigger(client);
    __asm__ volatile("" ::: "memory");
    return cookie;
}
STAYS void in_unblocks(void) {
    set_mask(SIG_UNBLOCK);
    __asm__ volatile("" ::: "memory");
}

/* The stack begins with the one who asks, and is there when uu_trigger() returns. */
STAYS void in_plain(void) {
    unsigned before = one.calls;
    errno = 77;
    uint64_t cookie = in_asks(one.client);
    CHECK(errno == 77 && cookie != 0 && one.calls == before + 1 && one.last.cookie == cookie);
    CHECK(one.last.size == sizeof one.last && one.last.tid == (uint32_t)gettid() && one.last.count > 3);
    CHECK(one.last.stop == UU_STOP_COMPLETE && starts_in(&one, "in_asks"));
    CHECK(strncmp(names(&one), "in_asks in_plain ", 17) == 0);
    CHECK(uu_cookie_is_pending(cookie) == 0);
    CHECK(in_asks(one.client) != cookie && one.calls == before + 2);
}

/* A cookie that waits while the signal is blocked survives; who asks meanwhile gets the same one. */
STAYS void in_blocked(void) {
    unsigned before = one.calls, before_two = two.calls;
    set_mask(SIG_BLOCK);
    uint64_t cookie = in_asks(one.client);
    CHECK(cookie && in_asks(one.client) == cookie && in_asks(two.client) == cookie && in_asks(two.client) == cookie);
    CHECK(one.calls == before && two.calls == before_two && uu_cookie_is_pending(cookie) == 1);
    in_unblocks();
    CHECK(one.calls == before + 1 && two.calls == before_two + 1);
    CHECK(one.last.cookie == cookie && two.last.cookie == cookie && uu_cookie_is_pending(cookie) == 0);
    CHECK(one.last.words == two.last.words && memcmp(one.frames, two.frames, 8 * one.last.words) == 0);
    CHECK(strcmp(names(&one), "in_unblocks in_blocked ") == 0 && one.last.stop == UU_STOP_COMPLETE);
}

/* In a handler that blocks the signal: the stack is that of the code that the handler interrupted. */
static uint64_t of_handler[2];
/* The compiler knows raise() as a function that calls nothing of this file. */
static int (*volatile raises)(int) = raise;
STAYS void in_handler(int number) {
    (void)number;
    of_handler[0] = in_asks(one.client);
    of_handler[1] = in_asks(two.client);
}
STAYS void in_interrupted(void) {
    struct sigaction action = {.sa_handler = in_handler};
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR1, &action, 0);
    unsigned before = one.calls;
    raises(SIGUSR1);
    CHECK(one.calls == before + 1 && of_handler[0] && of_handler[0] == of_handler[1]);
    CHECK(one.last.cookie == of_handler[0] && two.last.cookie == of_handler[0]);
    CHECK(strcmp(names(&one), "in_interrupted ") == 0);
    /* One that does not block it is part of the stack. */
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, 0);
    raises(SIGUSR1);
    CHECK(of_handler[0] != of_handler[1] && two.last.cookie == of_handler[1]);
    CHECK(strcmp(names(&two), "in_asks in_handler in_interrupted ") == 0);
}

/* Asked again while clients are being called. */
static uint64_t meanwhile[2];
static void asks_meanwhile(void) {
    meanwhile[0] = uu_trigger(one.client);
    meanwhile[1] = uu_trigger(two.client);
}
STAYS void in_delivery(void) {
    unsigned before = one.calls, before_two = two.calls;
    one.meanwhile = asks_meanwhile;
    uint64_t cookie = in_asks(one.client);
    one.meanwhile = 0;
    CHECK(meanwhile[0] == cookie && meanwhile[1] == cookie);
    CHECK(one.calls == before + 1 && two.calls == before_two + 1 && two.last.cookie == cookie);
    CHECK(one.last.words == two.last.words && memcmp(one.frames, two.frames, 8 * one.last.words) == 0);
    CHECK(in_asks(two.client) != cookie && one.calls == before + 1 && two.calls == before_two + 2);
}

/* A client's function removes another client and gives its number to a new one, which gets only what it asks for
   itself: nothing, and then this stack. */
static void replaces_two(void) {
    CHECK(uu_client_unregister(two.client) == 0 && uu_client_register(deliver, &two) == two.client);
}
static void replaces_one_which_asks(void) {
    CHECK(uu_client_unregister(one.client) == 0 && uu_client_register(deliver, &one) == one.client);
    meanwhile[0] = uu_trigger(one.client);
}
STAYS void in_replaced(void) {
    unsigned before = one.calls, before_two = two.calls;
    one.meanwhile = replaces_two;
    set_mask(SIG_BLOCK);
    uint64_t cookie = in_asks(one.client);
    CHECK(cookie && in_asks(two.client) == cookie);
    in_unblocks();
    one.meanwhile = 0;
    CHECK(one.calls == before + 1 && two.calls == before_two && uu_cookie_is_pending(cookie) == 0);
    two.meanwhile = replaces_one_which_asks;
    set_mask(SIG_BLOCK);
    cookie = in_asks(one.client);
    CHECK(cookie && in_asks(two.client) == cookie);
    in_unblocks();
    two.meanwhile = 0;
    CHECK(meanwhile[0] == cookie && one.calls == before + 3 && two.calls == before_two + 1);
    CHECK(one.last.cookie == cookie && uu_cookie_is_pending(cookie) == 0);
    in_plain();
}

/* Inside a walk of the thread there is no other one: a reason instead of a stack. */
static uint64_t inside;
static int asks_inside(void *user, const uint64_t *words, size_t count) {
    (void)user, (void)words, (void)count;
    inside = uu_trigger(one.client);
    return 1;
}
STAYS void in_walk(void) {
    unsigned before = one.calls;
    struct uu_request walk = {.size = sizeof walk, .frame = asks_inside};
    CHECK(uu_walk(&walk) == 0 && walk.stop == UU_STOP_ENDED_BY_CALLBACK);
    CHECK(inside && one.calls == before + 1 && one.last.cookie == inside);
    CHECK(one.last.words == 0 && one.last.count == 0 && one.last.stop == UU_STOP_FAULT);
    in_plain();
}

/* A thread that ends with a cookie pending. */
static uint64_t of_thread;
static void *ends(void *client) {
    set_mask(SIG_BLOCK);
    of_thread = uu_trigger(*(int *)client);
    CHECK(of_thread && uu_cookie_is_pending(of_thread) == 1);
    return 0;
}
static void threads_end(void) {
    uint64_t lost = uu_triggers_lost();
    unsigned before = one.calls;
    uint64_t last = 0;
    for (int i = 1; i <= 3; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, 0, ends, &one.client) == 0 && pthread_join(thread, 0) == 0);
        while (i != 2 && uu_cookie_is_pending(of_thread)) /* the kernel may report its end a little later */
            sched_yield();
        CHECK(of_thread != last);
        last = of_thread;
    }
    while (uu_triggers_lost() < lost + 3)
        sched_yield();
    CHECK(uu_triggers_lost() == lost + 3 && one.calls == before);
}

/* Forks: the child's cookies are void, the parent's survive. */
static int status_of(pid_t child) {
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}
static void in_child(uint64_t cookie, uint64_t lost) {
    unsigned before = one.calls;
    uint64_t own = uu_trigger(one.client);
    CHECK(own && own != cookie && uu_cookie_is_pending(cookie) == 0 && uu_triggers_lost() == lost + 1);
    in_unblocks();
    CHECK(one.calls == before + 1 && one.last.cookie == own && one.last.stop == UU_STOP_COMPLETE);
    _exit(0);
}
STAYS void in_forks(void) {
    /* Under the recorder, sigaction(2) answers in the child of a raw one that another handler has the signal. */
    for (int raw = 0; raw < (getenv("UU_SESSION") ? 1 : 2); raw++) {
        set_mask(SIG_BLOCK);
        uint64_t cookie = in_asks(one.client), lost = uu_triggers_lost();
        unsigned before = one.calls;
        /* The raw one runs no fork handlers. */
        pid_t child = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        if (child == 0)
            in_child(cookie, lost);
        CHECK(status_of(child) == 0 && one.calls == before && uu_cookie_is_pending(cookie) == 1);
        in_unblocks();
        CHECK(one.calls == before + 1 && one.last.cookie == cookie && uu_triggers_lost() == lost);
    }
    uint64_t lost = uu_triggers_lost();
    static uint64_t of_child;
    pid_t child = vfork();
    if (child == 0) {
        of_child = uu_trigger(one.client);
        _exit(0);
    }
    CHECK(status_of(child) == 0 && of_child == 0 && uu_triggers_lost() == lost + 1);
    in_plain();

    /* What it cancels is its own, which is nothing: the parent's stays. */
    static volatile int cancelled;
    unsigned before = one.calls;
    set_mask(SIG_BLOCK);
    uint64_t pending = uu_trigger(one.client);
    child = vfork();
    if (child == 0) {
        cancelled = uu_trigger_cancel();
        _exit(0);
    }
    CHECK(status_of(child) == 0 && !cancelled && uu_cookie_is_pending(pending) == 1);
    in_unblocks();
    CHECK(one.calls == before + 1 && one.last.cookie == pending);
}

/* exec(2) keeps pending signals, which would end the next program. */
static void executes(char *self) {
    for (int cancels = 0; cancels < 2; cancels++) {
        pid_t child = fork();
        if (child == 0) {
            set_mask(SIG_BLOCK);
            uint64_t lost = uu_triggers_lost(), cookie = in_asks(one.client);
            CHECK(cookie);
            if (cancels) {
                CHECK(uu_trigger_cancel() == 1 && uu_cookie_is_pending(cookie) == 0 && uu_triggers_lost() == lost + 1);
                CHECK(uu_trigger_cancel() == 0);
                CHECK(in_asks(two.client) != cookie && uu_trigger_cancel() == 1);
            }
            execl(self, self, "unblock", (char *)0);
            _exit(9);
        }
        int status = status_of(child);
        CHECK(cancels ? status == 0 : WIFSIGNALED(status) && WTERMSIG(status) == uu_thread_signal(0));
    }
}

/* What uu_trigger() refuses. */
static void refused(void) {
    uint64_t lost = uu_triggers_lost();
    CHECK(uu_trigger(-1) == 0 && uu_trigger(15) == 0 && uu_trigger(16) == 0 && uu_triggers_lost() == lost + 3);
    CHECK(uu_cookie_is_pending(0) == -EINVAL && uu_cookie_is_pending(~UINT64_C(0)) == -EINVAL);
    CHECK(uu_client_register(0, 0) == -EINVAL && uu_client_unregister(-1) == -EINVAL);
    CHECK(uu_client_unregister(14) == -ENOENT && uu_trigger_cancel() == 0);
    pid_t child = fork();
    if (child == 0) {
        unsigned before = one.calls;
        lost = uu_triggers_lost();
        struct rlimit had, none;
        getrlimit(RLIMIT_SIGPENDING, &had);
        none = had, none.rlim_cur = 0;
        CHECK(setrlimit(RLIMIT_SIGPENDING, &none) == 0);
        CHECK(in_asks(one.client) == 0 && uu_triggers_lost() == lost + 1 && one.calls == before);
        CHECK(setrlimit(RLIMIT_SIGPENDING, &had) == 0);
        CHECK(in_asks(one.client) != 0 && one.calls == before + 1);
        struct sigaction was, other = {.sa_handler = SIG_IGN};
        int signal = uu_thread_signal(0);
        sigaction(signal, &other, &was);
        CHECK(uu_thread_signal(0) == -EBUSY && uu_client_register(deliver, &one) == -EBUSY);
        CHECK(in_asks(one.client) == 0 && one.calls == before + 1);
        sigaction(signal, &was, 0);
        CHECK(in_asks(one.client) != 0 && one.calls == before + 2);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
}

/* What a client's function may not do. */
static void *volatile allocated;
static void allocates(void) { allocated = malloc(8); }

/* A client's function that is left. */
static sigjmp_buf out;
/* Another thread asks for this one's stack while a cookie is pending, and needs no signal of its own: it is answered
   although that one is taken back. */
static uint32_t walked;
static atomic_uint asker;
static void *walks(void *unused) {
    static uint64_t frames[MOST];
    struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = MOST};
    (void)unused;
    asker = (unsigned)gettid();
    return (void *)(intptr_t)uu_walk_thread(walked, &request, 5000000000);
}
static int sleeps(unsigned tid) {
    char path[64], stat[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%u/stat", tid);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(stat, sizeof stat, file));
    fclose(file);
    return strstr(stat, ") S ") != 0;
}
static void cancelled_while_asked(void) {
    walked = (uint32_t)gettid();
    set_mask(SIG_BLOCK);
    CHECK(uu_trigger(one.client) != 0);
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, 0, walks, 0) == 0);
    while (!asker || !sleeps(asker))
        sched_yield();
    CHECK(uu_trigger_cancel() == 1);
    in_unblocks();
    CHECK(pthread_join(thread, &result) == 0 && result == 0);
    in_plain();
}

#ifdef __x86_64__
/* uu_trigger() is left by siglongjmp() at each of its instructions. Nothing waits for ever. */
static int steps_left;
static void on_trap(int number) {
    (void)number;
    if (--steps_left == 0)
        siglongjmp(out, 1);
}
static void left_anywhere(void) {
    struct sigaction action = {.sa_handler = on_trap}, old;
    CHECK(sigaction(SIGTRAP, &action, &old) == 0);
    for (volatile int steps = 1, is_over = 0; !is_over; steps++) {
        if (!sigsetjmp(out, 1)) {
            steps_left = steps;
            __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
            uu_trigger(two.client);
            __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
            is_over = steps_left > 0;
        } else {
            uu_capture_abandoned();
        }
        unsigned before = one.calls;
        CHECK(uu_trigger(one.client) != 0 && one.calls == before + 1);
    }
    CHECK(sigaction(SIGTRAP, &old, 0) == 0);
    in_plain();
}
/* The signal of a thread that asks for this one's stack arrives at each of its instructions. The stack begins with the
   caller all the same. */
static void on_trap_asked(int number) {
    (void)number;
    if (--steps_left == 0) {
        /* As in ffi/crashes/src/threads/handler.rs. */
        siginfo_t info = {.si_signo = uu_thread_signal(0), .si_code = -0x7575};
        info.si_pid = getpid();
        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), info.si_signo, &info) == 0);
    }
}
/* A thread's first request, and a handler's at each of its instructions: also while the thread takes a slot, so that its
   handler takes another one. */
static uint64_t of_trap;
static void on_trap_asks(int number) {
    (void)number;
    if (--steps_left == 0)
        of_trap = uu_trigger(two.client);
}
static void *asks_first(void *unused) {
    (void)unused;
    unsigned before = one.calls, before_two = two.calls;
    set_mask(SIG_BLOCK);
    sigset_t trap;
    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    pthread_sigmask(SIG_UNBLOCK, &trap, 0);
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    uint64_t cookie = uu_trigger(one.client);
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
    in_unblocks();
    CHECK(cookie && one.calls == before + 1 && one.last.cookie == cookie && uu_cookie_is_pending(cookie) == 0);
    if (steps_left <= 0)
        CHECK(of_trap && two.calls == before_two + 1 && two.last.cookie == of_trap);
    return 0;
}
static void asked_while_it_asks_first(void) {
    struct sigaction action = {.sa_handler = on_trap_asks}, old;
    CHECK(sigaction(SIGTRAP, &action, &old) == 0);
    int steps = 0;
    do {
        pthread_t thread;
        steps_left = ++steps;
        CHECK(pthread_create(&thread, 0, asks_first, 0) == 0 && pthread_join(thread, 0) == 0);
    } while (steps_left <= 0);
    CHECK(sigaction(SIGTRAP, &old, 0) == 0 && steps > 100);
}
STAYS void in_asked_anywhere(void) {
    struct sigaction action = {.sa_handler = on_trap_asked}, old;
    CHECK(sigaction(SIGTRAP, &action, &old) == 0);
    for (volatile int steps = 1, is_over = 0; !is_over; steps++) {
        unsigned before = one.calls;
        steps_left = steps;
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
        uint64_t cookie = uu_trigger(one.client);
        __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
        is_over = steps_left > 0;
        CHECK(cookie && one.calls == before + 1 && one.last.cookie == cookie && starts_in(&one, "in_asked_anywhere"));
    }
    CHECK(sigaction(SIGTRAP, &old, 0) == 0);
    in_plain();
}
#endif

static void leaves(void) { siglongjmp(out, 1); }
static void left(void) {
    unsigned before = one.calls;
    uint64_t lost = uu_triggers_lost();
    one.meanwhile = leaves;
    if (!sigsetjmp(out, 1)) {
        uu_trigger(one.client);
        CHECK(!"it comes back");
    }
    one.meanwhile = 0;
    uu_capture_abandoned();
    CHECK(one.calls == before + 1 && uu_triggers_lost() == lost + 1);
    in_plain();
}

/* A client that leaves while it is being called on another thread. */
static atomic_int runs, has_run;
static void slow(void *user, const struct uu_delivery *d) {
    (void)user, (void)d;
    runs = 1;
    for (int i = 0; i < 50; i++)
        usleep(1000);
    has_run++;
}
static void *triggers(void *client) {
    CHECK(uu_trigger(*(int *)client));
    return 0;
}
static void unregisters(void) {
    int client = uu_client_register(slow, 0);
    CHECK(client == 2);
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, triggers, &client) == 0);
    while (!runs)
        sched_yield();
    CHECK(uu_client_unregister(client) == 0 && has_run == 1);
    CHECK(pthread_join(thread, 0) == 0 && uu_trigger(client) == 0);
    /* One that leaves while a cookie waits for it. */
    client = uu_client_register(slow, 0);
    set_mask(SIG_BLOCK);
    uint64_t cookie = uu_trigger(client), same = uu_trigger(one.client);
    unsigned before = one.calls;
    CHECK(cookie && same == cookie && uu_client_unregister(client) == 0);
    in_unblocks();
    CHECK(has_run == 1 && one.calls == before + 1 && one.last.cookie == cookie);
}

/* All ways at once: threads that ask, handlers that interrupt them and ask, also inside of deliveries. */
enum { THREADS = 3, ROUNDS = 4000, ENOUGH = 1000, ROOM = 400000 };
static struct entry { uint64_t cookie, hash; int client; } asked[ROOM], served[ROOM];
static atomic_size_t n_asked, n_served;
static int storm_clients[2];
static void note(struct entry *to, atomic_size_t *count, uint64_t cookie, int client, uint64_t hash) {
    size_t at = (*count)++;
    CHECK(at < ROOM && cookie);
    to[at] = (struct entry){cookie, hash, client};
}
static void ask(int which) {
    note(asked, &n_asked, uu_trigger(storm_clients[which]), which, 0);
}
static void storm_deliver(void *user, const struct uu_delivery *d) {
    uint64_t hash = d->words + d->stop;
    for (size_t i = 0; i < d->words; i++)
        hash = (hash ^ d->frames[i]) * 0x9e3779b97f4a7c15u;
    int which = user != 0;
    note(served, &n_served, d->cookie, which, hash);
    if (d->frames && hash % 3 == 0)
        ask(!which);
}
static atomic_int going, handled;
static void on_usr2(int number) {
    (void)number;
    handled++;
    ask(handled & 1);
}
static void *storms(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, uu_thread_signal(0));
    for (int i = 0; i < ROUNDS || handled < ENOUGH; i++) {
        if (i >= ROUNDS)
            sched_yield();
        if (n_asked > ROOM / 2)
            continue;
        int is_blocked = rand_r(&seed) % 4 == 0;
        if (is_blocked)
            pthread_sigmask(SIG_BLOCK, &set, 0);
        ask(rand_r(&seed) & 1);
        if (is_blocked) {
            ask(rand_r(&seed) & 1);
            pthread_sigmask(SIG_UNBLOCK, &set, 0);
        }
    }
    going--;
    while (going > -1) /* so that there is a thread to be signalled */
        sched_yield();
    return 0;
}
static int by_cookie(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return x->cookie != y->cookie ? (x->cookie < y->cookie ? -1 : 1) : x->client - y->client;
}
static void storm(void) {
    uint64_t lost = uu_triggers_lost();
    for (size_t i = 0; i < 2; i++)
        CHECK((storm_clients[i] = uu_client_register(storm_deliver, (void *)i)) >= 0);
    struct sigaction action = {.sa_handler = on_usr2, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, 0);
    pthread_t threads[THREADS];
    going = THREADS;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], 0, storms, (void *)(i + 1)) == 0);
    for (unsigned i = 0; going > 0; i++)
        pthread_kill(threads[i % THREADS], SIGUSR2);
    going = -1;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
    CHECK(uu_triggers_lost() == lost);
    CHECK(handled >= ENOUGH);
    /* Each cookie was served once to each client that asked, with one stack. */
    qsort(asked, n_asked, sizeof *asked, by_cookie);
    qsort(served, n_served, sizeof *served, by_cookie);
    size_t s = 0;
    for (size_t a = 0; a < n_asked; a++) {
        if (a && by_cookie(&asked[a - 1], &asked[a]) == 0)
            continue; /* asked again */
        CHECK(s < n_served && by_cookie(&asked[a], &served[s]) == 0);
        CHECK(!s || served[s - 1].cookie != served[s].cookie || served[s - 1].hash == served[s].hash);
        s++;
    }
    CHECK(s == n_served);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "unblock") == 0) {
        in_unblocks();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "storm") == 0) {
        storm();
        printf("%zu asked, %zu served\n", (size_t)n_asked, (size_t)n_served);
        return 0;
    }
    CHECK((one.client = uu_client_register(deliver, &one)) == 0);
    if (argc > 1 && strcmp(argv[1], "malloc") == 0) {
        one.meanwhile = allocates;
        in_plain();
        return 0;
    }
    CHECK((two.client = uu_client_register(deliver, &two)) == 1);
    in_plain();
    in_blocked();
    in_interrupted();
    in_delivery();
    in_replaced();
    in_walk();
    threads_end();
    in_forks();
    executes(argv[0]);
    refused();
    left();
#ifdef __x86_64__
    left_anywhere();
    in_asked_anywhere();
    asked_while_it_asks_first();
#endif
    cancelled_while_asked();
    unregisters();
    storm();
    printf("ok\n");
    return 0;
}
