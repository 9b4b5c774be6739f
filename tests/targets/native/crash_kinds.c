/* crash_kinds KIND [OBJECT]: a program that knows nothing of crash reports crashes, in functions that are named after the
   kinds (crash_KIND, with _ for -). */
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define STAYS __attribute__((noinline, noipa))
#define AFTER __asm__ volatile("" ::: "memory")
static const char *kind, *object;
static int is(const char *name) { return strcmp(kind, name) == 0; }
static int *volatile null;
static volatile int zero, one = 1;
static volatile double nothing;
static int in_data[4] = {0xc3};

STAYS void crash_here(void) { *null = 1; AFTER; }
STAYS void crash_read_only(void) { *(volatile char *)(uintptr_t)"a constant" = 1; AFTER; }
STAYS void crash_data_call(void) { ((void (*volatile)(void))(uintptr_t)in_data)(); AFTER; }
STAYS void crash_privileged(void) { __asm__ volatile("hlt"); AFTER; }
STAYS void crash_guard_page(void) {
    char *page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)page = 1;
    AFTER;
}
/* Alignment checks stay on in signal handlers. */
STAYS void crash_misaligned(void) {
    static uint64_t words[2];
    __asm__ volatile("pushf\n orl $0x40000, (%%rsp)\n popf\n mov %%rax, (%0)" : : "r"((char *)words + 1) : "memory", "cc");
    AFTER;
}
STAYS void crash_least_divided(void) { zero = INT32_MIN / (zero - one); AFTER; }
STAYS void crash_float(void) {
    feenableexcept(FE_DIVBYZERO);
    nothing = 1.0 / nothing;
    AFTER;
}
STAYS void crash_protector(void) {
    volatile char room[16];
    for (int i = 0; i < 16 + 16 * one; i++)
        room[i] = 'A';
    zero = room[0] - 'A';
    AFTER;
}
STAYS void crash_double_free(void) {
    void *volatile chunk = malloc(3000), *volatile wall = malloc(10);
    free(chunk);
    free(chunk);
    free(wall);
    AFTER;
}
STAYS void crash_fortify(void) {
    static char small[8];
    memset(small, 1, (size_t)(16 * one));
    AFTER;
}
STAYS int crash_large_frame(int n) {
    volatile char *room = __builtin_alloca((size_t)(16 << 20) * (size_t)one);
    room[0] = (char)n;
    return room[0] + one;
}
STAYS void crash_unmapped_code(void) {
    char *code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(code, 4096);
    ((void (*volatile)(void))(uintptr_t)code)();
    AFTER;
}
STAYS void crash_made_code(void) {
    char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, "\x55\x48\x89\xe5\x0f\x0b", 6); /* push rbp; mov rbp, rsp; ud2 */
    ((void (*volatile)(void))(uintptr_t)code)();
    AFTER;
}
static int crash_compare(const void *a, const void *b) {
    crash_here();
    AFTER;
    return a < b;
}
STAYS void crash_callback(void) {
    int two[2] = {2, 1};
    qsort(two, 2, sizeof *two, crash_compare);
    AFTER;
}
static void on_signal(int signal) {
    (void)signal;
    crash_here();
    AFTER;
}
STAYS void crash_alternate(void) {
    static char room[1 << 16];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    AFTER;
}
static ucontext_t before, other;
STAYS void in_other_context(void) { crash_here(); AFTER; }
STAYS void crash_swapped(void) {
    static char room[1 << 16];
    getcontext(&other);
    other.uc_stack.ss_sp = room, other.uc_stack.ss_size = sizeof room, other.uc_link = &before;
    makecontext(&other, in_other_context, 0);
    swapcontext(&before, &other);
    AFTER;
}
STAYS void crash_unload(void) {
    void *open = dlopen(object, RTLD_NOW);
    zero = dlclose(open);
    AFTER;
}
STAYS void crash_blocked(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    crash_here();
    AFTER;
}
/* All but what instructions raise. */
STAYS void crash_mostly_blocked(void) {
    sigset_t most;
    sigfillset(&most);
    sigdelset(&most, SIGSEGV);
    sigprocmask(SIG_BLOCK, &most, 0);
    crash_here();
    AFTER;
}
STAYS void crash_closed(void) {
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    crash_here();
    AFTER;
}
STAYS void crash_changed_folder(void) {
    zero = chdir("/");
    crash_here();
    AFTER;
}
STAYS void crash_chroot(void) {
    if (chroot(object) || chdir("/"))
        exit(9);
    crash_here();
    AFTER;
}
STAYS void crash_child(void) {
    pid_t child = fork();
    if (child == 0) {
        crash_here();
        AFTER;
    }
    int status;
    waitpid(child, &status, 0);
    /* As the child. */
    if (WIFSIGNALED(status))
        exit(100 + WTERMSIG(status));
    AFTER;
}
STAYS void crash_leaving(void) { exit(3); }
static void at_exit(void) { crash_here(); AFTER; }
static void of_key(void *unused) {
    (void)unused;
    crash_here();
    AFTER;
}


/* What the processor refuses. */
STAYS void crash_null_call(void) { ((void (*volatile)(void))0)(); AFTER; }
STAYS void crash_non_canonical(void) { zero = *(volatile int *)(UINT64_C(1) << 63); AFTER; }
STAYS void crash_trap(void) { __asm__ volatile("ud2"); AFTER; }
STAYS void crash_lock_prefix(void) { __asm__ volatile(".byte 0xf0, 0x90"); AFTER; }
STAYS void crash_interrupts(void) { __asm__ volatile("cli"); AFTER; }
STAYS void crash_movaps(void) {
    static uint64_t words[4];
    __asm__ volatile("movaps (%0), %%xmm0" : : "r"((char *)words + 8 + ((uintptr_t)words & 8)) : "xmm0");
    AFTER;
}
STAYS void crash_zero_divided(void) { one = one / zero; AFTER; }
STAYS void crash_float_invalid(void) {
    feenableexcept(FE_INVALID);
    nothing = nothing / nothing;
    AFTER;
}
STAYS void crash_float_overflow(void) {
    feenableexcept(FE_OVERFLOW);
    nothing = 1e308;
    nothing = nothing * nothing;
    AFTER;
}

/* What the kernel refuses: pages without memory or rights. */
static char *file_page(int protection, int *file) {
    *file = memfd_create("page", 0);
    zero = ftruncate(*file, 4096);
    return mmap(0, 4096, protection, MAP_SHARED, *file, 0);
}
STAYS void crash_truncated_file(void) {
    int file;
    volatile char *page = file_page(PROT_READ, &file);
    zero = ftruncate(file, 0);
    zero = *page;
    AFTER;
}
STAYS void crash_read_only_file(void) {
    int file;
    *(volatile char *)file_page(PROT_READ, &file) = 1;
    AFTER;
}
STAYS void crash_unmapped_data(void) {
    int file;
    volatile char *page = file_page(PROT_READ, &file);
    munmap((void *)page, 4096);
    zero = *page;
    AFTER;
}

/* What the C library refuses, or is given. */
STAYS void crash_abort(void) { abort(); }
STAYS void crash_assert(void) { assert(zero == one); AFTER; }
STAYS void crash_invalid_free(void) {
    /* With a plausible size before it. */
    uint64_t *chunk = malloc(100);
    chunk[0] = 0x71;
    uint64_t *volatile inside = chunk + 1;
    free(inside);
    AFTER;
}
STAYS void crash_heap(void) {
    uint64_t *volatile chunk = malloc(100);
    chunk[-1] = 0x4141414141414140;
    free(chunk);
    AFTER;
}
static void *volatile no_memory = (void *)8;
STAYS void crash_in_memcpy(void) {
    static char from[4096];
    memcpy(no_memory, from, sizeof from / (size_t)one);
    AFTER;
}
STAYS void crash_in_strlen(void) { zero = (int)strlen(no_memory); AFTER; }
STAYS void crash_in_printf(void) {
    const char *volatile format = "%s%s\n";
    printf(format, "", no_memory);
    AFTER;
}

/* Signals that are sent. */
STAYS void crash_raised(void) { raise(SIGSEGV); AFTER; }
STAYS void crash_killed(void) { kill(getpid(), SIGBUS); AFTER; }
STAYS void crash_queued(void) { sigqueue(getpid(), SIGFPE, (union sigval){.sival_int = 1}); AFTER; }
STAYS void crash_thread_killed(void) { pthread_kill(pthread_self(), SIGILL); AFTER; }

/* Who calls. */
static void of_once(void) { crash_here(); AFTER; }
STAYS void crash_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, of_once);
    AFTER;
}
STAYS void crash_tree(void) {
    void *root = 0;
    tsearch(in_data, &root, crash_compare);
    tsearch(in_data + 1, &root, crash_compare);
    AFTER;
}
STAYS void crash_timer(void) {
    signal(SIGALRM, on_signal);
    struct itimerval soon = {.it_value.tv_usec = 1000, .it_interval.tv_usec = 1000};
    setitimer(ITIMER_REAL, &soon, 0);
    for (;;)
        pause();
}
static void on_first(int number) {
    (void)number;
    raise(SIGUSR2);
    AFTER;
}
STAYS void crash_nested_handlers(void) {
    signal(SIGUSR1, on_first);
    signal(SIGUSR2, on_signal);
    raise(SIGUSR1);
    AFTER;
}
STAYS void crash_quick_exit(void) {
    at_quick_exit(at_exit);
    quick_exit(3);
}
__attribute__((destructor)) static void in_destructor(void) {
    if (kind && is("destructor"))
        crash_here();
    AFTER;
}
STAYS void crash_at_fork(void) {
    pthread_atfork(at_exit, 0, 0);
    zero = fork();
    AFTER;
}

/* Frames. */
STAYS void crash_realigned(void) {
    _Alignas(64) volatile char room[64];
    room[one] = 1;
    crash_here();
    zero = room[one];
    AFTER;
}
STAYS void of_many(int count, ...) {
    va_list rest;
    va_start(rest, count);
    nothing = va_arg(rest, double);
    crash_here();
    va_end(rest);
    AFTER;
}
STAYS void crash_variadic(void) { of_many(one, 1.5, "two"); AFTER; }

static const struct { const char *kind; void (*crash)(void); } CRASHES[] = {
    {"read-only", crash_read_only}, {"data-call", crash_data_call}, {"privileged", crash_privileged},
    {"guard-page", crash_guard_page}, {"misaligned", crash_misaligned}, {"least-divided", crash_least_divided},
    {"float", crash_float}, {"protector", crash_protector}, {"double-free", crash_double_free}, {"fortify", crash_fortify},
    {"unmapped-code", crash_unmapped_code}, {"made-code", crash_made_code}, {"callback", crash_callback},
    {"alternate", crash_alternate}, {"swapped", crash_swapped}, {"unload", crash_unload}, {"blocked", crash_blocked},
    {"mostly-blocked", crash_mostly_blocked}, {"closed", crash_closed}, {"changed-folder", crash_changed_folder},
    {"chroot", crash_chroot}, {"child", crash_child}, {"at-exit", crash_leaving},
    {"null-call", crash_null_call}, {"non-canonical", crash_non_canonical}, {"trap", crash_trap},
    {"lock-prefix", crash_lock_prefix}, {"interrupts", crash_interrupts}, {"movaps", crash_movaps},
    {"zero-divided", crash_zero_divided}, {"float-invalid", crash_float_invalid},
    {"float-overflow", crash_float_overflow}, {"truncated-file", crash_truncated_file},
    {"read-only-file", crash_read_only_file}, {"unmapped-data", crash_unmapped_data}, {"abort", crash_abort},
    {"assert", crash_assert}, {"invalid-free", crash_invalid_free}, {"heap", crash_heap},
    {"in-memcpy", crash_in_memcpy}, {"in-strlen", crash_in_strlen}, {"in-printf", crash_in_printf},
    {"raised", crash_raised}, {"killed", crash_killed}, {"queued", crash_queued},
    {"thread-killed", crash_thread_killed}, {"once", crash_once}, {"tree", crash_tree}, {"timer", crash_timer},
    {"nested-handlers", crash_nested_handlers}, {"quick-exit", crash_quick_exit}, {"destructor", crash_leaving},
    {"at-fork", crash_at_fork}, {"realigned", crash_realigned}, {"variadic", crash_variadic},
};

STAYS int middle(void) {
    if (is("large-frame"))
        return crash_large_frame(1) + one;
    for (unsigned i = 0; i < sizeof CRASHES / sizeof *CRASHES; i++)
        if (is(CRASHES[i].kind)) {
            CRASHES[i].crash();
            return 1;
        }
    crash_here();
    return 1;
}

static pthread_key_t key;
STAYS void *worker(void *unused) {
    if (is("thread-key")) {
        pthread_setspecific(key, &key);
        return unused;
    }
    if (is("main-gone"))
        usleep(20000);
    middle();
    AFTER;
    return unused;
}
static void *starts_programs(void *unused) {
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)0);
            _exit(1);
        }
        waitpid(child, 0, 0);
    }
    return unused;
}
__attribute__((constructor)) static void in_constructor(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "constructor") == 0)
        crash_here();
    AFTER;
}

int main(int argc, char **argv) {
    kind = argc > 1 ? argv[1] : "";
    object = argc > 2 ? argv[2] : 0;
    pthread_t thread;
    if (is("at-exit"))
        atexit(at_exit);
    if (is("exec-storm")) {
        for (int i = 0; i < 2; i++)
            pthread_create(&thread, 0, starts_programs, 0);
        usleep(20000);
    }
    if (is("thread-key") || is("main-gone") || is("detached") || is("small-thread")) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        if (is("small-thread"))
            pthread_attr_setstacksize(&attributes, 16384);
        pthread_key_create(&key, of_key);
        pthread_create(&thread, &attributes, worker, 0);
        if (is("detached")) {
            pthread_detach(thread);
            for (;;)
                pause();
        }
        if (is("main-gone"))
            pthread_exit(0);
        pthread_join(thread, 0);
    }
    int result = middle();
    AFTER;
    return result;
}
