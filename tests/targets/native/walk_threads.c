/* uu_walk_thread() and uu_walk_all(): threads that wait, spin, block signals, sleep uninterruptibly and end; the program's
   own use of the signal; forks; several that ask at once. Stacks are compared with the functions that each thread is in.
   Prints "ok". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); fflush(stdout); _exit(1); } } while (0)
#define SECOND 1000000000ull
#define LONG (60 * SECOND)
#define MOST 4096

static uint32_t own_tid(void) { return (uint32_t)syscall(SYS_gettid); }
static struct uu_request request(uint64_t *frames, size_t capacity) {
    struct uu_request r;
    memset(&r, 0, sizeof r);
    r.size = sizeof r, r.frames = frames, r.capacity = capacity;
    return r;
}

/* The names of the program's functions in a stack, leaf first, each with a space after it. */
static void names(const uint64_t *frames, size_t words, char *out) {
    *out = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t at = UU_FRAME_ADDRESS(frames[i]) - !(frames[i] & UU_FRAME_EXACT);
        Dl_info info;
        if (UU_FRAME_KIND(frames[i]) == UU_FRAME_NATIVE && dladdr((void *)at, &info) && info.dli_sname &&
            strncmp(info.dli_sname, "in_", 3) == 0)
            strcat(strcat(out, info.dli_sname), " ");
    }
}

struct worker {
    pthread_t thread;
    _Atomic uint32_t tid;
    atomic_int go, block, ready;
    int kind;
};
enum { WAITS, SPINS, VFORKS };
static int gate[2];

#define STAYS __attribute__((noinline, noipa, visibility("default")))
STAYS void in_wait(struct worker *w) {
    char byte;
    w->ready = 1;
    while (!w->go)
        if (read(gate[0], &byte, 1) < 0 && errno != EINTR)
            abort();
    __asm__ volatile("" ::: "memory");
}
STAYS void in_spin(struct worker *w) {
    w->ready = 1;
    while (!w->go)
        ;
    __asm__ volatile("" ::: "memory");
}
STAYS void in_vfork(struct worker *w) {
    w->ready = 1;
    char byte;
    pid_t child = vfork();
    if (child == 0) {
        read(gate[0], &byte, 1);
        _exit(0);
    }
    waitpid(child, 0, 0);
    __asm__ volatile("" ::: "memory");
}
STAYS void in_outer(struct worker *w) {
    if (w->block) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, 0);
    }
    (w->kind == WAITS ? in_wait : w->kind == SPINS ? in_spin : in_vfork)(w);
    if (w->block) {
        sigset_t none;
        sigemptyset(&none);
        pthread_sigmask(SIG_SETMASK, &none, 0);
        w->go = w->ready = 0;
        in_spin(w);
    }
    __asm__ volatile("" ::: "memory");
}
static void *work(void *argument) {
    struct worker *w = argument;
    w->tid = own_tid();
    char name[16];
    snprintf(name, sizeof name, "worker-%d", w->kind);
    pthread_setname_np(pthread_self(), name);
    in_outer(w);
    return 0;
}
static void begin(struct worker *w, int kind, int block) {
    memset(w, 0, sizeof *w);
    w->kind = kind, w->block = block;
    CHECK(pthread_create(&w->thread, 0, work, w) == 0);
    while (!w->ready)
        usleep(100);
}
static void end(struct worker *w) {
    w->go = 1;
    CHECK(w->kind == SPINS || write(gate[1], "x", 1) == 1);
    CHECK(pthread_join(w->thread, 0) == 0);
}

static uint64_t frames[64 * MOST];
static char text[65536];

static void refused(void) {
    struct uu_request r = request(frames, MOST);
    CHECK(uu_walk_thread(own_tid(), 0, LONG) == -EINVAL);
    r.ucontext = frames;
    CHECK(uu_walk_thread(own_tid(), &r, LONG) == -EINVAL);
    r = request(frames, MOST), r.size = 8;
    CHECK(uu_walk_thread(own_tid(), &r, LONG) == -EINVAL);
    r = request(frames, MOST);
    CHECK(uu_walk_thread(0, &r, LONG) == -ESRCH && r.words == 0);
    CHECK(uu_walk_thread(UINT32_MAX, &r, LONG) == -ESRCH);
    CHECK(uu_walk_thread((uint32_t)getppid(), &r, LONG) == -ESRCH);
    struct worker ended;
    begin(&ended, SPINS, 0);
    end(&ended);
    CHECK(uu_walk_thread(ended.tid, &r, LONG) == -ESRCH);
    struct uu_thread threads[2];
    CHECK(uu_walk_all(0, threads, 2, LONG) == -EINVAL);
    CHECK(uu_walk_all(&r, 0, 2, LONG) == -EINVAL);
    CHECK(uu_walk_all(&r, (void *)((char *)threads + 1), 1, LONG) == -EINVAL);
    r.frame = (int (*)(void *, const uint64_t *, size_t))abort;
    CHECK(uu_walk_all(&r, threads, 2, LONG) == -EINVAL);
    for (int bad = -1; bad < 34; bad += 7)
        CHECK(uu_thread_signal(bad == 0 ? 65 : bad) == -EINVAL);
}

static int count_calls(void *user, const uint64_t *words, size_t count) {
    (void)words, (void)count;
    return ++*(int *)user == 3;
}

STAYS void in_own_stack(void) {
    struct uu_request r = request(frames, MOST);
    CHECK(uu_walk_thread(own_tid(), &r, 0) == 0 && r.stop == UU_STOP_COMPLETE);
    names(frames, r.words, text);
    CHECK(strcmp(text, "in_own_stack ") == 0);
    __asm__ volatile("" ::: "memory");
}

static void one_thread(void) {
    struct worker w;
    for (int kind = WAITS; kind <= SPINS; kind++) {
        begin(&w, kind, 0);
        for (int i = 0; i < 200; i++) {
            struct uu_request r = request(frames, MOST);
            CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && r.stop == UU_STOP_COMPLETE);
            names(frames, r.words, text);
            CHECK(strcmp(text, kind == WAITS ? "in_wait in_outer " : "in_spin in_outer ") == 0);
        }
        int calls = 0;
        struct uu_request r = request(frames, MOST);
        r.frame = count_calls, r.user = &calls;
        CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && calls == 3 && r.stop == UU_STOP_ENDED_BY_CALLBACK && r.count == 3);
        r = request(frames, 1);
        CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && r.stop == UU_STOP_BUFFER_FULL && r.words == 1);
        end(&w);
    }
}

static long queued(void) {
    char line[256];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "SigQ: %ld", &n);
    if (f)
        fclose(f);
    return n;
}

static void silent_threads(void) {
    struct worker w;
    struct uu_request r;
    begin(&w, WAITS, 1);
    long before = queued();
    for (int i = 0; i < 300; i++) {
        r = request(frames, MOST);
        CHECK(uu_walk_thread(w.tid, &r, 1000) == -ETIMEDOUT && r.stop == UU_STOP_SIGNAL_BLOCKED && r.words == 0);
    }
    /* Other processes of this user have signals, too; ours would be 300. */
    CHECK(queued() < before + 150);
    w.go = 1;
    CHECK(write(gate[1], "x", 1) == 1);
    r = request(frames, MOST);
    CHECK(uu_walk_thread(w.tid, &r, LONG) == 0);
    while (!w.ready || w.go)
        usleep(100);
    r = request(frames, MOST);
    CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && r.stop == UU_STOP_COMPLETE);
    names(frames, r.words, text);
    CHECK(strcmp(text, "in_spin in_outer ") == 0);
    w.kind = SPINS;
    end(&w);

    begin(&w, VFORKS, 0);
    do {
        r = request(frames, MOST);
    } while (uu_walk_thread(w.tid, &r, 1000000) != -ETIMEDOUT || r.stop != UU_STOP_THREAD_ASLEEP);
    end(&w);
}

static atomic_int theirs;
static int their_value, their_code;
static sigset_t their_mask;
static void their_handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)ucontext;
    their_value = info->si_value.sival_int, their_code = info->si_code;
    pthread_sigmask(SIG_SETMASK, 0, &their_mask);
    theirs++;
}

/* The program has a handler for the signal, or none, before and after the library. */
static void own_use_of_the_signal(void) {
    struct worker w;
    begin(&w, WAITS, 0);
    struct sigaction action = {.sa_sigaction = their_handler, .sa_flags = SA_SIGINFO};
    int mine = SIGRTMIN + 3;
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK(sigaction(mine, &action, 0) == 0);
    CHECK(uu_thread_signal(mine) == mine && uu_thread_signal(0) == mine);
    struct uu_request r = request(frames, MOST);
    CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && theirs == 0);
    CHECK(pthread_sigqueue(pthread_self(), mine, (union sigval){.sival_int = 77}) == 0);
    CHECK(theirs == 1 && their_value == 77 && their_code == SI_QUEUE);
    CHECK(sigismember(&their_mask, SIGUSR2) && sigismember(&their_mask, mine) && !sigismember(&their_mask, SIGUSR1));
    CHECK(kill(getpid(), mine) == 0);
    while (theirs != 2)
        usleep(100);
    /* It takes the signal away: nothing of the library's arrives there. */
    CHECK(sigaction(mine, &action, 0) == 0);
    CHECK(uu_walk_thread(w.tid, &r, LONG) == -EBUSY && theirs == 2 && uu_thread_signal(mine) == -EBUSY);
    CHECK(uu_thread_signal(0) == -EBUSY);
    struct uu_thread threads[2];
    CHECK(uu_walk_all(&r, threads, 2, LONG) == 2 && threads[0].error == 0 && threads[1].error == -EBUSY);
    CHECK(uu_thread_signal(SIGRTMIN + 4) == SIGRTMIN + 4);
    CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && theirs == 2);
    end(&w);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGRTMIN + 4);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGRTMIN + 4);
}

/* A handler for one time is called once, and does not take the library's away. */
static void handler_for_one_time(void) {
    struct worker w;
    theirs = 0;
    begin(&w, SPINS, 0);
    struct sigaction action = {.sa_sigaction = their_handler, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND | SA_NODEFER};
    int mine = SIGRTMIN + 5;
    CHECK(sigaction(mine, &action, 0) == 0 && uu_thread_signal(mine) == mine);
    struct uu_request r = request(frames, MOST);
    CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && uu_walk_thread(w.tid, &r, LONG) == 0 && theirs == 0);
    CHECK(raise(mine) == 0 && theirs == 1 && !sigismember(&their_mask, mine));
    CHECK(uu_walk_thread(w.tid, &r, LONG) == 0);
    end(&w);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        raise(mine);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == mine);
}

/* The child of a vfork asks, while an ask of its parent is under way in the memory that both have. */
static struct worker silent;
static void *asks_silent(void *answered) {
    static uint64_t own[MOST];
    struct uu_request r = request(own, MOST);
    int result = uu_walk_thread(silent.tid, &r, LONG);
    *(atomic_int *)answered = result == 0 ? 1 : 2;
    return 0;
}
static long queued_for(uint32_t tid) {
    char path[64], line[256];
    unsigned long set = 0;
    snprintf(path, sizeof path, "/proc/self/task/%u/status", tid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "SigPnd: %lx", &set);
    if (f)
        fclose(f);
    return set != 0;
}
static void child_of_a_vfork_asks(void) {
    static atomic_int answered;
    pthread_t asker;
    answered = 0;
    begin(&silent, WAITS, 1);
    CHECK(pthread_create(&asker, 0, asks_silent, &answered) == 0);
    while (!queued_for(silent.tid))
        usleep(1000);
    pid_t child = vfork();
    if (child == 0) {
        struct uu_request r = request(frames, MOST);
        int right = 1;
        for (int i = 0; i < 40; i++)
            right &= uu_walk_thread(silent.tid, &r, 0) == -ESRCH;
        _exit(right ? 7 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    silent.go = 1;
    CHECK(write(gate[1], "x", 1) == 1 && pthread_join(asker, 0) == 0 && answered == 1);
    while (!silent.ready || silent.go)
        usleep(100);
    silent.kind = SPINS;
    end(&silent);
}

#define MANY 40
static struct worker many[MANY];
static struct uu_thread threads[2 * MANY];

static void all_threads(void) {
    for (int i = 0; i < MANY; i++)
        begin(&many[i], i % 8 ? WAITS : SPINS, i == 20);
    struct uu_request r = request(frames, sizeof frames / 8);
    CHECK(uu_walk_all(&r, threads, 2 * MANY, 6 * SECOND) == MANY + 1);
    CHECK(threads[0].tid == own_tid() && threads[0].error == 0 && threads[0].stop == UU_STOP_COMPLETE);
    size_t words = 0;
    for (int i = 0; i < MANY + 1; i++) {
        CHECK(threads[i].first == words && threads[i].words == threads[i].count);
        words += threads[i].words;
    }
    CHECK(words == r.words);
    for (int i = 0; i < MANY; i++) {
        int at = 1;
        while (at <= MANY && threads[at].tid != many[i].tid)
            at++;
        CHECK(at <= MANY);
        CHECK(strcmp(threads[at].name, many[i].kind == WAITS ? "worker-0" : "worker-1") == 0);
        if (many[i].block) {
            CHECK(threads[at].error == -ETIMEDOUT && threads[at].stop == UU_STOP_SIGNAL_BLOCKED && threads[at].words == 0);
            continue;
        }
        /* A busy machine may not let a thread run in time; but then it says so. */
        if (threads[at].error == -ETIMEDOUT && threads[at].stop == UU_STOP_NO_ANSWER)
            continue;
        CHECK(threads[at].error == 0 && threads[at].stop == UU_STOP_COMPLETE);
        names(frames + threads[at].first, threads[at].words, text);
        CHECK(strcmp(text, many[i].kind == WAITS ? "in_wait in_outer " : "in_spin in_outer ") == 0);
    }
    CHECK(uu_walk_all(&r, threads, 3, SECOND) == MANY + 1 && threads[1].tid && threads[2].tid);
    r = request(frames, 2);
    CHECK(uu_walk_all(&r, threads, 2 * MANY, SECOND) == MANY + 1 && r.words == 2 && threads[0].stop == UU_STOP_BUFFER_FULL);
    CHECK(uu_walk_all(&r, threads, 2 * MANY, 0) == MANY + 1);
    /* In the child of a fork there is one thread. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        r = request(frames, MOST);
        CHECK(uu_walk_all(&r, threads, 2 * MANY, LONG) == 1 && threads[0].error == 0 && threads[0].tid == (uint32_t)getpid());
        CHECK(uu_walk_thread(many[0].tid, &r, LONG) == -ESRCH);
        struct worker w;
        begin(&w, SPINS, 0);
        CHECK(uu_walk_thread(w.tid, &r, LONG) == 0 && r.stop == UU_STOP_COMPLETE);
        end(&w);
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    for (int i = 0; i < MANY; i++)
        many[i].go = 1;
    /* Each that waits takes a byte, and the one that blocked signals spins afterwards. */
    for (int i = 0; i < MANY; i++)
        CHECK(many[i].kind != WAITS || write(gate[1], "x", 1) == 1);
    for (int i = 0; i < MANY; i++) {
        while (many[i].block && (!many[i].ready || many[i].go))
            usleep(100);
        many[i].go = 1;
        CHECK(pthread_join(many[i].thread, 0) == 0);
    }
}

/* Threads begin and end while two others ask for all of them, with times that are too short now and then. */
static atomic_int over, seen;
static void *short_life(void *argument) {
    in_outer(argument);
    return 0;
}
static void *asks(void *argument) {
    (void)argument;
    uint64_t *own = malloc(64 * MOST * sizeof *own);
    struct uu_thread list[64];
    for (unsigned i = 0; !over; i++) {
        struct uu_request r = request(own, 64 * MOST);
        int n = uu_walk_all(&r, list, 64, i % 3 ? SECOND : 50000);
        CHECK(n > 0);
        for (int k = 0; k < n && k < 64; k++) {
            int e = list[k].error;
            CHECK(e == 0 || e == -ESRCH || e == -ETIMEDOUT || e == -EBUSY || e == -EAGAIN);
            seen += e == 0 && k > 0;
        }
    }
    free(own);
    return 0;
}
static void storm(void) {
    pthread_t two[2], short_lived[8];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&two[i], 0, asks, 0) == 0);
    for (int round = 0; round < 200; round++) {
        struct worker w[8];
        memset(w, 0, sizeof w);
        for (int i = 0; i < 8; i++) {
            w[i].kind = SPINS, w[i].go = 1;
            CHECK(pthread_create(&short_lived[i], 0, short_life, &w[i]) == 0);
        }
        for (int i = 0; i < 8; i++)
            CHECK(pthread_join(short_lived[i], 0) == 0);
    }
    while (seen < 100)
        usleep(1000);
    over = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(two[i], 0) == 0);
}

/* From the handler of a fault. */
static void on_fault(int signal) {
    (void)signal;
    struct uu_request r = request(frames, sizeof frames / 8);
    CHECK(uu_walk_thread(many[0].tid, &r, LONG) == 0 && r.stop == UU_STOP_COMPLETE);
    names(frames, r.words, text);
    CHECK(strcmp(text, "in_wait in_outer ") == 0);
    CHECK(uu_walk_all(&r, threads, 2 * MANY, LONG) == 2);
    puts("ok");
    fflush(stdout);
    _exit(0);
}

int main(void) {
    CHECK(pipe(gate) == 0);
    refused();
    in_own_stack();
    for (int handled = 0; handled < 2; handled++) {
        one_thread();
        silent_threads();
        all_threads();
        CHECK(uu_handle_faults() == 0);
    }
    own_use_of_the_signal();
    handler_for_one_time();
    child_of_a_vfork_asks();
    storm();
    begin(&many[0], WAITS, 0);
    signal(SIGFPE, on_fault);
    raise(SIGFPE);
    return 1;
}
