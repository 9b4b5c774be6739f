/* Windows come and go as fast as they can, under walks as fast as signals can be delivered. As soon as the registry says that
   no walk can still read a window, all that belongs to it is unmapped: a walk that reads it nevertheless kills the program.

   Usage: windows_stress SECONDS
   - two churners register windows, whose rules and names come from functions that read the window's own pages; take them away by
     unregister, by unlink and synchronize, or by replacing several at once; and unmap the pages at once;
   - two walkers walk, from made-up contexts with a pc in one of the places where windows come and go, and are hit by signals
     from a third thread and from CPU timers, whose handler walks, too;
   - a thread at a time walks in a loop and is cancelled, asynchronously, in mid-walk;
   - one walker is thrown out of its walks by siglongjmp;
   - half-way, a crowd of windows comes, among which walks find their way by hints;
   - the program forks; the child registers a window, walks, and takes it away.
   Prints what was done, and exits with 0, if every window could be taken away and every answer was right. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <uu.h>

enum { PLACES = 24, TOGETHER = 3, PAGE = 4096 };
#define TEXT(place) (0x200000000000ul + 0x100000ul * (unsigned long)(place))
#define MAGIC 0x77696e646f77ul

/* What a window's functions read: a page of its own, unmapped when the window is gone. */
struct page {
    uint64_t magic, place;
    struct uu_function functions[4];
    uint64_t published;
};

static atomic_int stop_all;
static atomic_long hits, misses, handler_walks, changes, swaps, cancels, jumps, forks, rules;
static uint64_t stack[64];

static void die(const char *what, long value) {
    fprintf(stderr, "windows_stress: %s (%ld)\n", what, value);
    _exit(3);
}

/* In walks. Faults if the page is gone, and fails if it is another's. */
static uint32_t rule(void *user, uint64_t pc, struct uu_rule *out) {
    const struct page *page = user;
    if (page->magic != MAGIC || TEXT(page->place) != (pc & ~0xffffful))
        die("a walk read what was given back", (long)page->place);
    out->kind = 0;
    out->reg = 7;
    out->offset = 16;
    atomic_fetch_add_explicit(&rules, 1, memory_order_relaxed);
    return 1;
}

/* A walk from a made-up frame. */
static void walk(unsigned *seed) {
    ucontext_t context;
    uint64_t frames[8];
    uint16_t stop = 0;
    *seed = *seed * 1103515245 + 12345;
    const unsigned place = (*seed >> 16) % PLACES;
    memset(&context, 0, sizeof context);
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)TEXT(place) + (*seed >> 8) % 64 * 64 + 1;
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)stack;
    const size_t count = uu_capture(frames, 8, &context, &stop);
    if (count == 0) /* refused: inside a walk that this one interrupted */
        return;
    if (UU_FRAME_ADDRESS(frames[0]) != (uint64_t)context.uc_mcontext.gregs[REG_RIP])
        die("another frame", (long)frames[0]);
    atomic_fetch_add_explicit(UU_FRAME_KIND(frames[0]) == UU_FRAME_WINDOW ? &hits : &misses, 1, memory_order_relaxed);
}

/* Handlers interrupt each other. On a busy machine signals may come faster than walks end, and a stack has an end: beyond
   this depth they return at once. */
#define MOST_HANDLERS 8
static __thread volatile sig_atomic_t handlers_within;

static void on_signal(int number, siginfo_t *info, void *context) {
    static __thread unsigned seed = 99;
    const int before = errno;
    (void)number;
    (void)info;
    (void)context;
    if (handlers_within >= MOST_HANDLERS)
        return;
    handlers_within++;
    walk(&seed);
    handlers_within--;
    atomic_fetch_add_explicit(&handler_walks, 1, memory_order_relaxed);
    errno = before;
}

static void fill(struct uu_window *window, unsigned place, struct page **page) {
    *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*page == MAP_FAILED)
        die("mmap", errno);
    (*page)->magic = MAGIC;
    (*page)->place = place;
    memset(window, 0, sizeof *window);
    window->size = sizeof *window;
    window->kind = UU_WINDOW_RULE;
    window->text = (void *)TEXT(place);
    window->text_len = PAGE;
    window->user = *page;
    window->rule = rule;
    window->functions = (*page)->functions;
    window->functions_room = 4;
    window->published = &(*page)->published;
    window->flags = UU_WINDOW_GROWING;
}

static void gone(struct page *page) {
    page->magic = 0;
    munmap(page, PAGE);
}

/* Waits without a limit: a thread that is being cancelled may leave a walk unfinished, which is repaired a little later. */
static void wait_for(uint64_t ticket) {
    for (int round = 0;; round++) {
        const int waited = uu_synchronize(ticket, 1000000000);
        if (waited == 0)
            return;
        if (waited != -ETIMEDOUT || round == 30)
            die("synchronize", waited);
    }
}

static void *churn(void *argument) {
    const unsigned first = (unsigned)(size_t)argument;
    struct uu_window windows[TOGETHER], others[TOGETHER];
    struct page *pages[TOGETHER], *other_pages[TOGETHER];
    unsigned seed = first + 1;
    while (!atomic_load(&stop_all)) {
        seed = seed * 1103515245 + 12345;
        const unsigned at = first + (seed >> 16) % (PLACES / 2 / TOGETHER) * TOGETHER;
        const void *texts[TOGETHER];
        uint64_t ticket = 0;
        for (unsigned i = 0; i < TOGETHER; i++) {
            fill(&windows[i], at + i, &pages[i]);
            texts[i] = windows[i].text;
            const int registered = uu_register_window(&windows[i]);
            if (registered)
                die("register", registered);
        }
        switch ((seed >> 8) % 3) {
        case 0:
            for (unsigned i = 0; i < TOGETHER; i++) {
                int result = uu_unregister_window(texts[i]);
                if (result == -ETIMEDOUT)
                    wait_for(uu_ticket());
                else if (result)
                    die("unregister", result);
                gone(pages[i]);
            }
            break;
        case 1:
            for (unsigned i = 0; i < TOGETHER; i++)
                if (uu_unlink_window(texts[i], &ticket))
                    die("unlink", i);
            wait_for(ticket);
            for (unsigned i = 0; i < TOGETHER; i++)
                gone(pages[i]);
            break;
        default:
            for (unsigned i = 0; i < TOGETHER; i++)
                fill(&others[i], at + i, &other_pages[i]);
            if (uu_replace_windows(texts, TOGETHER, others, TOGETHER, &ticket))
                die("replace", at);
            wait_for(ticket);
            for (unsigned i = 0; i < TOGETHER; i++)
                gone(pages[i]);
            if (uu_replace_windows(texts, TOGETHER, 0, 0, &ticket))
                die("remove", at);
            wait_for(ticket);
            for (unsigned i = 0; i < TOGETHER; i++)
                gone(other_pages[i]);
            atomic_fetch_add(&swaps, 1);
        }
        atomic_fetch_add(&changes, TOGETHER);
    }
    return 0;
}

/* Between walks: a walker that loses its CPU in mid-walk makes writers wait for a time slice. */
static void rest(void) {
    const struct timespec time = {0, 50000};
    nanosleep(&time, 0);
}

static void *walk_on(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    clockid_t clock;
    struct sigevent event;
    timer_t timer;
    struct itimerspec every = {{0, 500000}, {0, 500000}};
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (pthread_getcpuclockid(pthread_self(), &clock) || timer_create(clock, &event, &timer) ||
        timer_settime(timer, 0, &every, 0))
        die("timer", errno);
    while (!atomic_load(&stop_all)) {
        for (int i = 0; i < 300; i++)
            walk(&seed);
        rest();
    }
    timer_delete(timer);
    return 0;
}

/* Walks until it is cancelled. */
__attribute__((noreturn)) static void *walk_until_cancelled(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    int before;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    for (;;)
        walk(&seed);
}

static __thread sigjmp_buf place;
static __thread volatile sig_atomic_t may_jump;

static void jump(int number) {
    (void)number;
    if (may_jump)
        siglongjmp(place, 1);
}

static void *walk_and_jump(void *argument) {
    volatile unsigned seed = (unsigned)(size_t)argument;
    while (!atomic_load(&stop_all)) {
        if (sigsetjmp(place, 1))
            atomic_fetch_add(&jumps, 1);
        handlers_within = 0;
        may_jump = 1;
        for (int i = 0; i < 3000 && !atomic_load(&stop_all); i++) {
            unsigned own = seed;
            walk(&own);
            seed = own;
        }
        may_jump = 0;
        rest();
    }
    return 0;
}

/* The registry is whole in a child, and usable at once. */
static void fork_once(void) {
    const pid_t child = fork();
    if (child == 0) {
        struct uu_window window;
        struct page *page;
        unsigned seed = 5;
        alarm(20);
        fill(&window, PLACES + 1, &page);
        int result = uu_register_window(&window);
        for (int i = 0; i < 100; i++)
            walk(&seed);
        result |= uu_unregister_window(window.text);
        _exit(result ? 4 : 0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        die("a child of fork", status);
    atomic_fetch_add(&forks, 1);
}

/* Enough windows that walks cache where they found one. They stay. */
static long crowd(void) {
    enum { CROWD = 1500 };
    for (unsigned i = 0; i < CROWD; i++) {
        struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_OPAQUE, .text = (void *)TEXT(PLACES + 100 + i),
                                   .text_len = PAGE};
        if (uu_register_window(&window))
            die("crowd", (long)i);
    }
    return CROWD;
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? atof(argv[1]) : 1;
    struct sigaction walks = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
    struct sigaction jumps_out = {.sa_handler = jump};
    sigset_t none;
    sigemptyset(&none);
    if (sigaction(SIGPROF, &walks, 0) || sigaction(SIGUSR1, &walks, 0) || sigaction(SIGUSR2, &jumps_out, 0))
        return 2;
    pthread_t walkers[2], churners[2], jumper;
    for (size_t i = 0; i < 2; i++)
        if (pthread_create(&walkers[i], 0, walk_on, (void *)(i + 1)) ||
            pthread_create(&churners[i], 0, churn, (void *)(i * PLACES / 2)))
            return 2;
    if (pthread_create(&jumper, 0, walk_and_jump, (void *)7))
        return 2;
    struct timespec begun, now;
    long crowded = 0;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (unsigned round = 0;; round++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        const double passed = (double)(now.tv_sec - begun.tv_sec) + 1e-9 * (double)(now.tv_nsec - begun.tv_nsec);
        if (passed > seconds / 2 && !crowded)
            crowded = crowd();
        if (passed > seconds)
            break;
        pthread_t victim;
        if (round % 16 == 0 && !pthread_create(&victim, 0, walk_until_cancelled, (void *)(size_t)round)) {
            for (int i = 0; i < 20; i++)
                pthread_kill(victim, SIGUSR1);
            pthread_cancel(victim);
            pthread_join(victim, 0);
            atomic_fetch_add(&cancels, 1);
        }
        for (int i = 0; i < 50; i++) {
            pthread_kill(walkers[i & 1], SIGUSR1);
            pthread_kill(churners[i & 1], SIGUSR1);
            if (i % 8 == 0)
                pthread_kill(jumper, SIGUSR2);
        }
        if (round % 64 == 0)
            fork_once();
    }
    atomic_store(&stop_all, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(churners[i], 0);
        pthread_join(walkers[i], 0);
    }
    pthread_join(jumper, 0);
    printf("changes %ld swaps %ld hits %ld misses %ld rules %ld handlers %ld cancels %ld jumps %ld forks %ld crowd %ld\n",
           changes, swaps, hits, misses, rules, handler_walks, cancels, jumps, forks, crowded);
    return 0;
}
