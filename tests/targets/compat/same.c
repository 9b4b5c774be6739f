/* Takes stacks by each interface that libuunwind-compat.so offers, by what the program's calls reach and by the
   library that defined it first, from the same call: both must be the same. Ends with 1 and says where they are not.
   One argument: a file name that what the calls reach must lie in. */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

enum { FRAMES = 400, PATHS = 2 };

/* The functions, of one library. */
struct Functions {
    int (*backtrace)(void **, int);
    int (*unw_backtrace)(void **, int);
    _Unwind_Reason_Code (*trace)(_Unwind_Trace_Fn, void *);
    uintptr_t (*get_ip)(struct _Unwind_Context *);
    uintptr_t (*get_ip_info)(struct _Unwind_Context *, int *);
    uintptr_t (*get_cfa)(struct _Unwind_Context *);
    uintptr_t (*get_gr)(struct _Unwind_Context *, int);
    uintptr_t (*get_region_start)(struct _Unwind_Context *);
    int (*init)(unw_cursor_t *, unw_context_t *);
    int (*init2)(unw_cursor_t *, unw_context_t *, int);
    int (*step)(unw_cursor_t *);
    int (*get_reg)(unw_cursor_t *, int, unw_word_t *);
    int (*is_signal)(unw_cursor_t *);
    int (*name)(unw_cursor_t *, char *, size_t, unw_word_t *);
    int (*info)(unw_cursor_t *, unw_proc_info_t *);
};
static struct Functions functions[2], generic[2];

struct Frame {
    unw_word_t ip, sp, rbx, rbp, r12, r13, r14, r15, start, end, lsda, offset;
    int is_signal, known;
    char name[96];
};

struct Trace {
    const struct Functions *by;
    struct Frame frames[FRAMES];
    int count;
    const char *what;
};

static int wrong;

static void same(const char *where, const char *what, int frame, unw_word_t ours, unw_word_t theirs) {
    if (ours == theirs)
        return;
    printf("%s: %s of frame %d: %#lx, and %#lx by the original\n", where, what, frame, ours, theirs);
    wrong = 1;
}

static _Unwind_Reason_Code each(struct _Unwind_Context *context, void *argument) {
    struct Trace *trace = argument;
    const struct Functions *by = trace->by;
    struct Frame *frame = &trace->frames[trace->count];
    if (trace->count++ == FRAMES)
        return _URC_NORMAL_STOP;
    memset(frame, 0, sizeof *frame);
    frame->ip = by->get_ip_info(context, &frame->is_signal);
    if (frame->ip != by->get_ip(context))
        frame->ip = 0;
    if (!frame->ip)
        return _URC_NO_REASON;
    frame->sp = by->get_cfa(context);
    frame->rbx = by->get_gr(context, 3);
    frame->rbp = by->get_gr(context, 6);
    frame->r12 = by->get_gr(context, 12);
    frame->r15 = by->get_gr(context, 15);
    frame->start = by->get_region_start(context);
    return _URC_NO_REASON;
}

static void cursor(struct Trace *trace, unw_context_t *context, int is_interrupted) {
    const struct Functions *by = trace->by;
    unw_cursor_t at, copy;
    int stepped;
    trace->count = 0;
    if (is_interrupted ? by->init2(&at, context, UNW_INIT_SIGNAL_FRAME) : by->init(&at, context))
        return;
    do {
        struct Frame *frame = &trace->frames[trace->count++];
        unw_proc_info_t info;
        memset(frame, 0, sizeof *frame);
        by->get_reg(&at, UNW_REG_IP, &frame->ip);
        by->get_reg(&at, UNW_REG_SP, &frame->sp);
        by->get_reg(&at, UNW_X86_64_RBX, &frame->rbx);
        by->get_reg(&at, UNW_X86_64_RBP, &frame->rbp);
        by->get_reg(&at, UNW_X86_64_R12, &frame->r12);
        by->get_reg(&at, UNW_X86_64_R13, &frame->r13);
        by->get_reg(&at, UNW_X86_64_R14, &frame->r14);
        by->get_reg(&at, UNW_X86_64_R15, &frame->r15);
        frame->is_signal = by->is_signal(&at);
        frame->known = by->name(&at, frame->name, sizeof frame->name, &frame->offset);
        if (!by->info(&at, &info))
            frame->start = info.start_ip, frame->end = info.end_ip, frame->lsda = info.lsda;
        copy = at; /* as programs do that keep a cursor */
        stepped = by->step(&copy);
        at = copy;
    } while (stepped > 0 && trace->count < FRAMES);
    if (stepped)
        printf("%s: the cursor ends with %d\n", trace->what, stepped), wrong = 1;
}

static void compare(const char *where, const struct Trace *ours, const struct Trace *theirs, int outermost) {
    same(where, "number of frames", ours->count, ours->count, theirs->count);
    for (int i = 0; i < ours->count && i < theirs->count; i++) {
        const struct Frame *a = &ours->frames[i], *b = &theirs->frames[i];
        /* Of the outermost function the registers are undefined, and so are those of a thread's. */
        int is_last = i + outermost >= ours->count;
        same(where, "address", i, a->ip, b->ip);
        same(where, "stack pointer", i, a->sp, b->sp);
        same(where, "signal", i, a->is_signal != 0, b->is_signal != 0);
        same(where, "start", i, a->start, b->start);
        same(where, "end", i, a->end, b->end);
        same(where, "lsda", i, a->lsda, b->lsda);
        same(where, "name", i, a->known, b->known);
        same(where, "offset", i, a->offset, b->offset);
        if (strcmp(a->name, b->name))
            printf("%s: frame %d is %s, and %s by the original\n", where, i, a->name, b->name), wrong = 1;
        /* The first function's own are of two different moments. */
        if (is_last || i == 0)
            continue;
        same(where, "rbx", i, a->rbx, b->rbx);
        same(where, "rbp", i, a->rbp, b->rbp);
        same(where, "r12", i, a->r12, b->r12);
        same(where, "r13", i, a->r13, b->r13);
        same(where, "r14", i, a->r14, b->r14);
        same(where, "r15", i, a->r15, b->r15);
    }
}

/* Large, and so not on the stacks of threads and handlers. */
static struct Trace traces[2];

static void take(const char *where, unw_context_t *interrupted) {
    for (int size = 1; size <= FRAMES; size = size == 1 ? 5 : size == 5 ? FRAMES : FRAMES + 1) {
        for (int path = 0; path < PATHS; path++) {
            void *frames[2][FRAMES];
            int count[2] = {0};
            for (volatile int i = 0; i < 2; i++)
                count[i] = (path ? functions[i].unw_backtrace : functions[i].backtrace)(frames[i], size);
            same(where, path ? "unw_backtrace" : "backtrace", size, count[0], count[1]);
            for (int i = 0; i < count[0] && i < count[1]; i++)
                same(where, path ? "unw_backtrace" : "backtrace", i, (uintptr_t)frames[0][i], (uintptr_t)frames[1][i]);
            if (size == FRAMES)
                printf("%s: %d frames\n", where, count[0]);
        }
    }
    unw_context_t context;
    _Unwind_Reason_Code reasons[2];
    for (volatile int i = 0; i < 2; i++) {
        traces[i].by = &functions[i], traces[i].count = 0, traces[i].what = where;
        reasons[i] = functions[i].trace(each, &traces[i]);
    }
    same(where, "_Unwind_Backtrace's result", 0, reasons[0], reasons[1]);
    compare(where, &traces[0], &traces[1], 2);
    unw_getcontext(&context);
    for (int set = 0; set < 2; set++) {
        for (volatile int i = 0; i < 2; i++) {
            traces[i].by = set ? &generic[i] : &functions[i];
            cursor(&traces[i], &context, 0);
        }
        compare(where, &traces[0], &traces[1], 1);
    }
    if (!interrupted)
        return;
    for (volatile int i = 0; i < 2; i++) {
        traces[i].by = &functions[i];
        cursor(&traces[i], interrupted, 1);
    }
    compare("the interrupted code", &traces[0], &traces[1], 1);
}

__attribute__((noinline)) static int deeper(const char *where, int depth, int n) {
    volatile char some[32] = {0};
    if (depth == 0)
        return take(where, 0), 0;
    n += deeper(where, depth - 1, n * 3);
    __asm__ volatile("" : "+r"(n)); /* no loop instead */
    return some[n & 31] + 1;
}

static const char *volatile handled;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    take(handled, context);
}

/* Interrupted at an instruction of its own, with values in the registers that callees save. */
__attribute__((noinline)) static int work(volatile int *go, int a, int b, int c, int d) {
    while (*go)
        a += b ^ c, b += c * 3, c ^= d, d -= a;
    return a + b + c + d;
}
static volatile int go;
static void stop_work(int signal, siginfo_t *info, void *context) {
    go = 0;
    handler(signal, info, context);
}

static void *thread(void *where) {
    return (void *)(intptr_t)deeper(where, 5, 1);
}

static int by_name(const void *a, const void *b) {
    handled = "a callback of libc";
    raise(SIGUSR2);
    return *(const int *)a - *(const int *)b;
}

static void *of(void *handle, const char *name, const char *first, const char *object) {
    void *found = dlsym(handle, name);
    Dl_info info;
    if (!found || !dladdr(found, &info) || (first && !strstr(info.dli_fname, object))) {
        printf("%s is not %s's, but %s's\n", name, object, found ? info.dli_fname : "nobody");
        exit(2);
    }
    return found;
}

static void find(struct Functions *to, void *handles[3], const char *prefix, const char *object) {
    char name[64];
#define FIND(field, handle, text) to->field = of(handles[handle], text, object, object)
#define NAMED(field, text) snprintf(name, sizeof name, "%s%s", prefix, text), FIND(field, 2, name)
    FIND(backtrace, 0, "backtrace");
    FIND(trace, 1, "_Unwind_Backtrace");
    FIND(get_ip, 1, "_Unwind_GetIP");
    FIND(get_ip_info, 1, "_Unwind_GetIPInfo");
    FIND(get_cfa, 1, "_Unwind_GetCFA");
    FIND(get_gr, 1, "_Unwind_GetGR");
    FIND(get_region_start, 1, "_Unwind_GetRegionStart");
    NAMED(init, "init_local");
    NAMED(init2, "init_local2");
    NAMED(step, "step");
    NAMED(get_reg, "get_reg");
    NAMED(is_signal, "is_signal_frame");
    NAMED(name, "get_proc_name");
    NAMED(info, "get_proc_info");
}

int main(int argc, char **argv) {
    const char *object = argc > 1 ? argv[1] : 0;
    void *all[3] = {RTLD_DEFAULT, RTLD_DEFAULT, RTLD_DEFAULT};
    void *theirs[3] = {dlopen("libc.so.6", RTLD_NOW), dlopen("libgcc_s.so.1", RTLD_NOW), dlopen("libunwind.so.8", RTLD_NOW)};
    void *others[3] = {theirs[0], theirs[1], dlopen("libunwind-x86_64.so.8", RTLD_NOW)};
    setvbuf(stdout, 0, _IONBF, 0);
    find(&functions[0], all, "_ULx86_64_", object);
    find(&functions[1], theirs, "_ULx86_64_", 0);
    find(&generic[0], all, "_Ux86_64_", object);
    find(&generic[1], others, "_Ux86_64_", 0);
    functions[0].unw_backtrace = of(RTLD_DEFAULT, "unw_backtrace", object, object);
    functions[1].unw_backtrace = of(theirs[2], "unw_backtrace", 0, 0);

    take("main", 0);
    deeper("recursion", 30, 1);
    deeper("deep recursion", 300, 1);

    static char alternate[1 << 18];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, 0);
    struct sigaction plain = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    struct sigaction other = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGUSR2, &plain, 0);
    handled = "a handler";
    raise(SIGUSR2);
    sigaction(SIGUSR1, &other, 0);
    handled = "a handler on another stack";
    raise(SIGUSR1);
    int numbers[2] = {2, 1};
    qsort(numbers, 2, sizeof numbers[0], by_name);

    struct sigaction interrupts = {.sa_sigaction = stop_work, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &interrupts, 0);
    for (int i = 0; i < 10; i++) {
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
        struct itimerspec soon = {.it_value = {.tv_nsec = 3000000 + 10007 * i}};
        go = 1;
        handled = "interrupted work";
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        timer_settime(timer, 0, &soon, 0);
        work(&go, i, 2, 3, 4);
        timer_delete(timer);
    }

    pthread_t started;
    pthread_create(&started, 0, thread, "a thread");
    pthread_join(started, 0);
    puts(wrong ? "not the same" : "the same");
    return wrong;
}
