/* crashes KIND [FD | PATH] [FLAGS]: crashes in many ways, in functions that are named after them. Kinds that begin with
   "no-" are no crashes: the program ends with 0. "-" instead of a path: without reports. */
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <uu.h>

#define STAYS __attribute__((noinline, noipa))
#define AFTER __asm__ volatile("" ::: "memory")
static const char *kind, *destination = "2";
static uint32_t flags;
static int is(const char *name) { return strcmp(kind, name) == 0; }
static int *volatile null;
static void (*volatile target)(void);
static volatile int zero;

STAYS void crash_read(void) { *null = 1; AFTER; }
STAYS void crash_wild_read(void) { null = (int *)0x1234567890abcdefull; *null = 1; AFTER; }
STAYS void crash_call(void) { target(); AFTER; }
STAYS void crash_divide(void) { zero = 77 / zero; AFTER; }
STAYS void crash_illegal(void) { __asm__ volatile("ud2"); AFTER; }
STAYS void crash_trap(void) { __asm__ volatile("int3"); AFTER; }
STAYS void crash_abort(void) { abort(); }
STAYS void crash_assert(void) { assert(zero); AFTER; }
STAYS void crash_sys(void) {
    struct sock_filter is_getppid[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, is_getppid};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        exit(5);
    syscall(SYS_getppid);
    AFTER;
}
STAYS void crash_raise(void) { raise(SIGSEGV); AFTER; }
STAYS void crash_bus(void) {
    FILE *file = tmpfile();
    volatile char *at = mmap(0, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    zero = *at;
    AFTER;
}
STAYS int crash_overflow(int n) {
    volatile char room[4000];
    room[n & 1023] = 1;
    return crash_overflow(n + 1) + room[n & 1023];
}
STAYS int crash_deep(int n) {
    if (n == 0)
        crash_read();
    else
        zero = crash_deep(n - 1);
    AFTER;
    return 1;
}
STAYS void crash_smash(void) {
    volatile uint64_t here[1];
    for (int i = 0; i < 64; i++)
        here[i] = 0x4141414141414141;
}
/* The heap is damaged: malloc() aborts while it holds its lock. */
STAYS void crash_heap(void) {
    uint64_t *chunk = malloc(3000), *wall = malloc(10);
    free(chunk);
    chunk[1] = 0x4141;
    wall[0] = (uint64_t)malloc(5000);
    AFTER;
}
STAYS void crash_load(void) {
    const char *path = getenv("CONSTRUCTOR");
    zero = dlopen(path, RTLD_NOW) != 0;
    AFTER;
}
static void handler_crash(int signal) {
    (void)signal;
    crash_read();
    AFTER;
}
STAYS void crash_handler(void) {
    signal(SIGUSR1, handler_crash);
    raise(SIGUSR1);
    AFTER;
}
/* Inside a walk, in functions that it calls. */
static int of_request(void *user, const uint64_t *words, size_t count) {
    (void)user, (void)words, (void)count;
    crash_read();
    return 0;
}
STAYS void crash_in_request(void) {
    struct uu_request request = {.size = sizeof request, .frame = of_request};
    zero = uu_walk(&request);
    AFTER;
}
static void of_client(void *user, const struct uu_delivery *delivery) {
    (void)user, (void)delivery;
    crash_read();
    AFTER;
}
STAYS void crash_in_client(void) {
    zero = (int)uu_trigger(uu_client_register(of_client, 0));
    AFTER;
}
static uint32_t of_window(void *user, uint64_t pc, struct uu_rule *rule) {
    (void)user, (void)pc, (void)rule;
    crash_read();
    AFTER;
    return 0;
}
static void walks(void) {
    struct uu_request request = {.size = sizeof request};
    zero = uu_walk(&request);
    AFTER;
}
STAYS void crash_in_window(void) {
    /* sub $8, %rsp; call *%rdi; add $8, %rsp; ret */
    static const unsigned char calls[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
    void *text = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(text, calls, sizeof calls);
    struct uu_window window = {
        .size = sizeof window, .kind = UU_WINDOW_RULE, .text = text, .text_len = 16, .rule = of_window};
    if (uu_register_window(&window) != 0)
        exit(10);
    union {
        void *object;
        void (*function)(void (*)(void));
    } through = {text};
    through.function(walks);
    AFTER;
}
STAYS void crash_unreadable(void) {
    /* What the stack pointer points to cannot be read. */
    __asm__ volatile("mov $4096, %%rsp\n ud2" ::: "memory");
}

/* Handlers from before. */
static sigjmp_buf out;
static char *page;
static volatile int handled;
static struct sigaction theirs;
static void jump_out(int s) { (void)s; handled++; siglongjmp(out, 1); }
static void skip_it(int s, siginfo_t *i, void *u) {
    (void)s, (void)i;
    handled++;
    ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP] = *(greg_t *)((ucontext_t *)u)->uc_mcontext.gregs[REG_RSP];
    ((ucontext_t *)u)->uc_mcontext.gregs[REG_RSP] += 8;
}
static void mend_page(int s, siginfo_t *i, void *u) {
    (void)s, (void)i, (void)u;
    handled++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}
static void give_up(int s) { handled++; signal(s, SIG_DFL); }
static void repeat(int s) { handled++; signal(s, SIG_DFL); raise(s); }
static void leave(int s) { (void)s; _exit(9); }
static void chain(int s, siginfo_t *i, void *u) {
    handled++;
    theirs.sa_sigaction(s, i, u);
}
static void restore(int s) { handled++; sigaction(s, &theirs, 0); raise(s); }
/* Faults itself, on the other half of the page, and is called again for that. */
static void mend_in_two(int s, siginfo_t *i, void *u) {
    (void)s, (void)u;
    char *half = page + 4096;
    if (i->si_addr == half)
        mprotect(half, 4096, PROT_READ | PROT_WRITE);
    else {
        *(volatile char *)half = 1;
        handled++;
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
    }
}
static void look_at_mask(int s, siginfo_t *i, void *u) {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, 0, &now);
    if (!sigismember(&now, SIGSEGV) && sigismember(&now, SIGUSR2) && !sigismember(&now, SIGUSR1))
        mend_page(s, i, u);
}
static void set(int signal, void *handler, int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags};
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(signal, &action, &theirs);
}
/* Only reachable by a call whose return address is at the stack pointer when it faults. */
__asm__(".text\n.type fault_leaf, @function\nfault_leaf: movl $1, 0\n ret\n.size fault_leaf, .-fault_leaf\n");
extern void fault_leaf(void);

STAYS void no_jump(void) { for (int i = 0; i < 3; i++) if (!sigsetjmp(out, 1)) crash_read(); }
STAYS void no_skip(void) { for (int i = 0; i < 3; i++) fault_leaf(); }
STAYS void no_mend(void) {
    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        *(volatile char *)page = 1;
        mprotect(page, 4096, PROT_NONE);
    }
}
STAYS void no_nested(void) {
    page = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        *(volatile char *)page = 1;
        mprotect(page, 8192, PROT_NONE);
    }
}
STAYS void no_first_jump(void) { for (int i = 0; i < 3; i++) if (!sigsetjmp(out, 1)) zero = crash_overflow(0); }
STAYS void no_ignored(void) { raise(SIGSEGV); handled = 3; }

static void before_install(void) {
    if (is("no-jump")) set(SIGSEGV, jump_out, 0);
    if (is("no-skip")) set(SIGSEGV, skip_it, SA_SIGINFO);
    if (is("no-mend") || is("no-again-mend-chained")) set(SIGSEGV, mend_page, SA_SIGINFO | SA_NODEFER);
    if (is("no-nested")) set(SIGSEGV, mend_in_two, SA_SIGINFO | SA_NODEFER);
    if (is("no-first-jump")) set(SIGSEGV, jump_out, SA_ONSTACK);
    if (is("no-unblocked") || is("handled")) {
        if (is("no-unblocked")) set(SIGSEGV, look_at_mask, SA_SIGINFO);
        if (uu_handle_faults() != 0) exit(4);
    }
    if (is("no-ignored")) set(SIGSEGV, SIG_IGN, 0);
    if (is("gives-up")) set(SIGSEGV, give_up, 0);
    if (is("repeats")) set(SIGSEGV, repeat, 0);
    if (is("repeats-nodefer")) set(SIGSEGV, repeat, SA_NODEFER);
    if (is("once")) set(SIGSEGV, mend_page, SA_SIGINFO | SA_RESETHAND), page = (char *)1;
    if (is("leaves") || is("leaves-reported")) set(SIGSEGV, leave, 0);
}
/* Takes the signal in front of the library, which takes it again. "circle": the handler calls the library's, which
   calls it. */
static void install(void);
static void take_again(void) {
    if (is("again-gives-up")) set(SIGSEGV, give_up, 0);
    if (strstr(kind, "again-chains") || is("again-circle")) set(SIGSEGV, chain, SA_SIGINFO);
    if (is("no-again-mend-chained")) set(SIGSEGV, chain, SA_SIGINFO | SA_NODEFER);
    if (is("again-restores")) set(SIGSEGV, restore, SA_NODEFER);
    if (is("no-again-mend")) set(SIGSEGV, mend_page, SA_SIGINFO | SA_NODEFER);
    if (is("again-off") && uu_report_crashes(-1, 0)) exit(5);
    if (is("again-default") || is("again-off")) set(SIGSEGV, SIG_DFL, 0);
    install();
    if (is("again-circle")) set(SIGSEGV, chain, SA_SIGINFO);
}
static void after_install(void) {
    if (strstr(kind, "again-")) take_again();
    /* Dispositions that call nobody count once. */
    for (int i = 0; is("again-default") && i < 20; i++) take_again();
    if (is("again-chains-twice")) take_again();
    for (int i = 0; is("again-chains-often") && i < 20; i++) take_again();
    if (is("chains")) set(SIGSEGV, chain, SA_SIGINFO);
    if (is("restores")) set(SIGSEGV, restore, SA_NODEFER);
}

static const struct { const char *kind; void (*crash)(void); } CRASHES[] = {
    {"read", crash_read}, {"wild-read", crash_wild_read}, {"call", crash_call}, {"wild-call", crash_call},
    {"divide", crash_divide}, {"illegal", crash_illegal}, {"trap", crash_trap}, {"abort", crash_abort},
    {"assert", crash_assert}, {"raise", crash_raise}, {"handled", crash_raise}, {"sys", crash_sys}, {"bus", crash_bus}, {"smash", crash_smash}, {"heap", crash_heap},
    {"load", crash_load}, {"handler", crash_handler}, {"unreadable", crash_unreadable}, {"no-jump", no_jump},
    {"no-skip", no_skip}, {"no-mend", no_mend}, {"no-unblocked", no_mend}, {"no-nested", no_nested},
    {"no-first-jump", no_first_jump}, {"no-ignored", no_ignored},
    {"in-request", crash_in_request}, {"in-client", crash_in_client}, {"in-window", crash_in_window},
    {"no-again-mend", no_mend}, {"no-again-mend-chained", no_mend},
};

STAYS int middle(void) {
    if (is("overflow") || is("overflow-thread"))
        zero = crash_overflow(0);
    if (is("deep"))
        zero = crash_deep(10000);
    for (unsigned i = 0; i < sizeof CRASHES / sizeof *CRASHES; i++)
        if (is(CRASHES[i].kind)) {
            CRASHES[i].crash();
            return 1;
        }
    crash_read();
    return 1;
}

static pthread_barrier_t together;
STAYS void *worker(void *with_stack) {
    if (with_stack && uu_prepare_thread() != 0)
        abort();
    pthread_barrier_wait(&together);
    middle();
    AFTER;
    return 0;
}
STAYS void waiting(void) {
    pthread_barrier_wait(&together);
    for (;;)
        pause();
}
STAYS void *waits(void *unused) {
    (void)unused;
    waiting();
    AFTER;
    return 0;
}
/* Asks all threads for their stacks, again and again. */
STAYS void *walks_all(void *unused) {
    static uint64_t frames[1 << 16];
    struct uu_thread list[8];
    for (int i = 0;; i++) {
        struct uu_request request = {.size = sizeof request, .frames = frames, .capacity = 1 << 16};
        if (uu_walk_all(&request, list, 8, 1000000000) < 0)
            abort();
        if (i == 10)
            pthread_barrier_wait(&together);
    }
    return unused;
}
static void in_threads(int n, size_t stack, int with_stack) {
    pthread_t threads[16];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack)
        pthread_attr_setstacksize(&attributes, stack);
    pthread_barrier_init(&together, 0, (unsigned)n);
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], &attributes, worker, with_stack ? &together : 0))
            abort();
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], 0);
}

/* Destinations without room. Returns how much was written, at most `most`. */
static size_t fill(int fd, size_t most) {
    static char bytes[100];
    size_t wrote = 0;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    while (wrote < most && write(fd, bytes, sizeof bytes) == sizeof bytes)
        wrote += sizeof bytes;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return wrote;
}
static int terminal(void) {
    int reader = posix_openpt(O_RDWR | O_NOCTTY);
    if (reader < 0 || grantpt(reader) || unlockpt(reader))
        exit(6);
    return open(ptsname(reader), O_RDWR | O_NOCTTY);
}
static int without_room(void) {
    int pair[2];
    if (is("full-pipe") && pipe(pair) == 0)
        return fill(pair[1], SIZE_MAX), pair[1];
    if (is("full-socket") && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)
        return fill(pair[0], SIZE_MAX), pair[0];
    if (is("full-terminal")) {
        /* Ready for writing, but not for all of the report. */
        int fd = terminal();
        fill(fd, fill(terminal(), SIZE_MAX) - 300);
        return fd;
    }
    return -1;
}

/* A thread that reads the report as it is written, and whose faults its program mends meanwhile. */
static int report_pipe[2];
static void mend_or_chain(int s, siginfo_t *i, void *u) {
    if ((char *)i->si_addr == page)
        mend_page(s, i, u);
    else
        theirs.sa_sigaction(s, i, u);
}
static void *reads(void *unused) {
    static char bytes[512];
    ssize_t got;
    while ((got = read(report_pipe[0], bytes, sizeof bytes)) > 0) {
        /* More than a pipe holds is still to come. */
        *(volatile char *)page = 1;
        mprotect(page, 4096, PROT_NONE);
        if (write(2, bytes, (size_t)got) != got)
            abort();
    }
    return unused;
}
static void read_while_faulting(void) {
    pthread_t thread;
    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pipe(report_pipe) || fcntl(report_pipe[1], F_SETPIPE_SZ, 4096) < 0 || uu_report_crashes(report_pipe[1], flags))
        exit(7);
    set(SIGSEGV, mend_or_chain, SA_SIGINFO | SA_NODEFER);
    pthread_create(&thread, 0, reads, 0);
}

static void install(void) {
    if (strcmp(destination, "-") == 0)
        return;
    if (getenv("UU_PLUGINS") && uu_setup() < 1)
        exit(8);
    char *end;
    long fd = strtol(destination, &end, 10);
    int done = *end ? uu_report_crashes_to(destination, flags) : uu_report_crashes((int)fd, flags);
    if (done != 0) {
        printf("install: %d\n", done);
        exit(3);
    }
}

int main(int argc, char **argv) {
    kind = argv[1];
    if (argc > 2)
        destination = argv[2];
    flags = argc > 3 ? (uint32_t)atoi(argv[3]) : UU_CRASH_JSON;
    if (is("wild-call"))
        target = (void (*)(void))0x123456000;
    if (is("refused")) {
        int pair[2], closed = dup(2);
        close(closed);
        if (pipe(pair))
            return 2;
        printf("%d %d %d %d %d %d %d\n", uu_report_crashes(closed, 0), uu_report_crashes(pair[0], 0),
               uu_report_crashes(-2, 0), uu_report_crashes(2, 1u << 31), uu_report_crashes_to(0, 0), uu_report_crashes_to("", 0),
               uu_report_crashes(-1, 0));
        return 0;
    }
    before_install();
    install();
    after_install();
    if (is("guarded") && uu_handle_faults() != 0)
        return 4;
    if (is("closed"))
        close(atoi(destination));
    if (is("reused")) {
        /* The number is another file's by now. */
        int other = open(argv[4], O_RDWR | O_CREAT, 0600);
        dup2(other, atoi(destination));
    }
    if (is("broken-pipe")) {
        int pair[2];
        if (pipe(pair) || uu_report_crashes(pair[1], flags))
            return 2;
        close(pair[0]);
    }
    int full = without_room();
    if (full >= 0 && uu_report_crashes(full, flags))
        return 2;
    if (is("file-limit")) {
        struct rlimit least = {100, 100};
        setrlimit(RLIMIT_FSIZE, &least);
    }
    if (is("reads-while-faulting"))
        read_while_faulting();
    if (is("off") && uu_report_crashes(-1, 0))
        return 2;
    if (is("fork") || is("vfork")) {
        /* In the child of a vfork this function goes on, and ends by the crash. */
        pid_t child = is("fork") ? fork() : vfork();
        if (child == 0) {
            zero = middle();
            AFTER;
            return zero;
        }
        int status;
        waitpid(child, &status, 0);
        printf("%d", (int)child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
            return 1;
        if (is("fork"))
            return 0;
        fflush(stdout);
    }
    if (is("heap")) {
        /* With more than one thread, malloc() locks. */
        pthread_t thread;
        pthread_barrier_init(&together, 0, 2);
        pthread_create(&thread, 0, waits, 0);
        pthread_barrier_wait(&together);
    }
    if (is("walked")) {
        pthread_t threads[2];
        pthread_barrier_init(&together, 0, 3);
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], 0, walks_all, 0);
        pthread_barrier_wait(&together);
    }
    if (is("thread")) in_threads(1, 0, 0);
    if (is("small-thread")) in_threads(1, 16384, 0);
    if (is("small-prepared-thread")) in_threads(1, 16384, 1);
    if (is("overflow-thread")) in_threads(1, 65536, 1);
    if (is("at-once")) in_threads(8, 0, 1);
    if (is("others")) {
        pthread_t thread;
        pthread_barrier_init(&together, 0, 4);
        for (int i = 0; i < 3; i++)
            pthread_create(&thread, 0, waits, 0);
        pthread_barrier_wait(&together);
    }
    int result = middle();
    AFTER;
    return strncmp(kind, "no-", 3) == 0 && (handled == 3 || is("no-again-mend-chained")) ? 0 : result;
}
