/* crash_kinds KIND [OBJECT]: a program that knows nothing of crash reports crashes, in functions that are named after the
   kinds (crash_KIND, with _ for -). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static const struct { const char *kind; void (*crash)(void); } CRASHES[] = {
    {"read-only", crash_read_only}, {"data-call", crash_data_call}, {"privileged", crash_privileged},
    {"guard-page", crash_guard_page}, {"misaligned", crash_misaligned}, {"least-divided", crash_least_divided},
    {"float", crash_float}, {"protector", crash_protector}, {"double-free", crash_double_free}, {"fortify", crash_fortify},
    {"unmapped-code", crash_unmapped_code}, {"made-code", crash_made_code}, {"callback", crash_callback},
    {"alternate", crash_alternate}, {"swapped", crash_swapped}, {"unload", crash_unload}, {"blocked", crash_blocked},
    {"mostly-blocked", crash_mostly_blocked}, {"closed", crash_closed}, {"changed-folder", crash_changed_folder},
    {"chroot", crash_chroot}, {"child", crash_child}, {"at-exit", crash_leaving},
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
    if (is("thread-key") || is("main-gone") || is("detached")) {
        pthread_key_create(&key, of_key);
        pthread_create(&thread, 0, worker, 0);
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
