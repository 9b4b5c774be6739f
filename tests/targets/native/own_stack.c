/* Captures in a program that has called nothing else of the library: what it believes of stacks, and what ends that. Argument:
   the case. Each capture is compared with what libgcc's unwinder says, or with the functions that are known to be there.
   Prints "fine", or what is wrong. The cases "calls" and "calls-in-a-thread" count the system calls of captures, which are
   marked by getppid(2), of the first time and of later ones. */
#define _GNU_SOURCE
#include "uu.h"

#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST 512
#define PAGE 4096
#define NOINLINE __attribute__((noinline, noclone))
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static void wrong(const char *what, unsigned long a, unsigned long b) {
    printf("%s: %lu, %lu\n", what, a, b);
    fflush(stdout);
    _exit(1);
}

static void *map(size_t pages) {
    void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        wrong("mmap", pages, 0);
    return at;
}

/* The frames above the caller's. */
NOINLINE static void compare(void) {
    uint64_t ours[MOST];
    void *theirs[MOST];
    uint16_t stop = 0;
    const int expected = backtrace(theirs, MOST);
    for (int again = 0; again < 6; again++) {
        const size_t count = uu_capture(ours, MOST, NULL, &stop);
        if (count != (size_t)expected || stop != UU_STOP_COMPLETE)
            wrong("frames", count, (unsigned long)expected);
        for (size_t i = 1; i < count; i++)
            if ((ours[i] & 0xffffffffffff) != (uint64_t)(uintptr_t)theirs[i])
                wrong("frame", i, stop);
    }
}

/* Calls `what` at the bottom of `depth` frames. */
NOINLINE static int deep(int depth, void (*what)(void)) {
    volatile char room[48];
    room[0] = 1;
    if (depth == 0)
        what();
    else
        return deep(depth - 1, what) + room[0];
    return room[0];
}

/* The same, and the frame in the midst is so large that a page of it can be taken away. */
static int (*take_away)(void *page);
NOINLINE static int with_a_hole(int depth, void (*what)(void)) {
    volatile char room[6 * PAGE];
    char *const page = (char *)(((uintptr_t)room + 2 * PAGE) & ~(uintptr_t)(PAGE - 1));
    room[0] = 1;
    if (take_away(page) != 0)
        return -1;
    deep(depth, what);
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0 || (madvise(page, PAGE, 103 /* MADV_GUARD_REMOVE */), 0))
        wrong("giving back", 0, 0);
    return room[0];
}
static int protects(void *page) { return mprotect(page, PAGE, PROT_NONE); }
static int installs_a_guard(void *page) { return madvise(page, PAGE, MADV_GUARD_INSTALL); }
static int unmaps(void *page) { return munmap(page, PAGE) || mmap(page, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page; }

static void holes(void) {
    int (*const ways[])(void *) = {protects, installs_a_guard, unmaps};
    for (int turn = 0; turn < 6; turn++)
        for (int way = 0; way < 3; way++) {
            /* So that the same frames lie, at other times, where the hole will be. */
            deep(150, compare);
            deep(300, compare);
            take_away = ways[way];
            if (with_a_hole(60, compare) < 0 && ways[way] != installs_a_guard)
                wrong("taking away", (unsigned long)way, 0);
        }
}

/* What lies below the stack pointer is taken away, and given back before the stack grows again. */
static char *lowest;
static void note_lowest(void) {
    char here;
    lowest = (char *)((uintptr_t)&here & ~(uintptr_t)(PAGE - 1));
    compare();
}
static void below(void) {
    int (*const ways[])(void *) = {protects, installs_a_guard, unmaps};
    deep(400, note_lowest);
    for (int way = 0; way < 3; way++) {
        ways[way](lowest);
        deep(3, compare);
        mprotect(lowest, PAGE, PROT_READ | PROT_WRITE);
        madvise(lowest, PAGE, 103);
        deep(400, compare);
    }
}

/* Runs a function on a stack that ends at `top`. The outermost function does not return: where it would, nothing is. */
static ucontext_t back;
static void (*on_it)(void);
void on_other_stack(void);
__attribute__((used)) NOINLINE void in_other_stack(void) {
    on_it();
    setcontext(&back);
}
__asm__(".text\n"
        ".type on_other_stack, @function\n"
        "on_other_stack:\n"
        ".cfi_startproc\n"
        "sub $16, %rsp\n"
        ".cfi_adjust_cfa_offset 16\n"
        "call in_other_stack\n"
        "ud2\n"
        ".cfi_endproc\n"
        ".size on_other_stack, . - on_other_stack\n");
static void run_at(char *top, void (*what)(void)) {
    on_it = what;
    volatile int done = 0;
    getcontext(&back);
    if (done)
        return;
    done = 1;
    __asm__ volatile("mov %0, %%rsp\n\tjmp *%1" : : "r"(top), "r"(on_other_stack) : "memory");
    __builtin_unreachable();
}

/* The functions that called this, whatever comes after them. */
static size_t at_least;
NOINLINE static void capture_some(void) {
    uint64_t ours[MOST];
    uint16_t stop = 0;
    for (int again = 0; again < 6; again++) {
        const size_t count = uu_capture(ours, MOST, NULL, &stop);
        if (count < at_least)
            wrong("frames of a switched stack", count, stop);
    }
}
static void few(void) { deep(3, capture_some); }
static void many(void) { deep(120, capture_some); }

/* A coroutine's stack is given back, and a shorter one put in its place, of which the first one's frames were a part. */
static void switched(void) {
    for (int turn = 0; turn < 8; turn++) {
        char *const area = map(16);
        at_least = 120;
        run_at(area + 16 * PAGE, many);
        at_least = 4;
        run_at(area + 16 * PAGE - 64, few);
        munmap(area + 8 * PAGE, 8 * PAGE);
        run_at(area + 8 * PAGE, few);
        for (int above = 0; above < 64; above += 16) {
            run_at(area + 7 * PAGE - above, few);
            mprotect(area + 7 * PAGE, PAGE, PROT_NONE);
            run_at(area + 7 * PAGE - above, few);
            mprotect(area + 7 * PAGE, PAGE, PROT_READ | PROT_WRITE);
        }
        munmap(area, 8 * PAGE);
        deep(20, compare);
    }
}

/* A thread's stack that the program provides: the next one's is shorter, and its TCB lies where the first one's did. */
static int depth_of_thread;
static void *in_thread(void *unused) {
    deep(depth_of_thread, compare);
    deep(depth_of_thread / 2, compare);
    return unused;
}
static void thread_at(char *start, size_t pages, int depth) {
    pthread_attr_t attributes;
    pthread_t thread;
    depth_of_thread = depth;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, start, pages * PAGE) != 0 ||
        pthread_create(&thread, &attributes, in_thread, NULL) != 0)
        wrong("a thread", pages, 0);
    pthread_join(thread, NULL);
}
static void threads(void) {
    for (int turn = 0; turn < 4; turn++) {
        char *const area = map(64);
        thread_at(area, 64, 300);
        munmap(area, 32 * PAGE);
        thread_at(area + 32 * PAGE, 32, 100);
        mprotect(area + 32 * PAGE, 8 * PAGE, PROT_NONE);
        thread_at(area + 40 * PAGE, 24, 60);
        munmap(area + 32 * PAGE, 32 * PAGE);
        depth_of_thread = 200;
        pthread_t thread;
        pthread_create(&thread, NULL, in_thread, NULL);
        pthread_join(thread, NULL);
    }
}

/* A task that shares the thread's memory and thread pointer, on a stack of its own. */
static int task(void *what) {
    ((void (*)(void))what)();
    return 0;
}
static void tasks(void) {
    deep(30, compare);
    for (int turn = 0; turn < 4; turn++) {
        char *const area = map(16);
        for (int pages = 16; pages > 2; pages -= 4) {
            at_least = pages == 16 ? 120 : 4;
            const int child = clone(task, area + pages * PAGE, CLONE_VM | SIGCHLD, (void *)(pages == 16 ? many : few));
            int status = -1;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
                wrong("a task", (unsigned long)status, (unsigned long)pages);
            munmap(area + (pages - 4) * PAGE, 4 * PAGE);
            deep(30, compare);
        }
    }
}

/* A signal's alternate stack, replaced by a shorter one at its place. */
static volatile int handled;
static void on_signal(int number, siginfo_t *info, void *ucontext) {
    uint64_t ours[MOST];
    uint16_t stop = 0;
    (void)number, (void)info;
    handled++;
    for (int again = 0; again < 4; again++) {
        compare();
        if (uu_capture(ours, MOST, ucontext, &stop) < 40 || stop != UU_STOP_COMPLETE)
            wrong("from the ucontext", stop, 0);
    }
}
static void interrupt_itself(void) { raise(SIGUSR1); }
static void alternate(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    action.sa_sigaction = on_signal;
    sigaction(SIGUSR1, &action, NULL);
    deep(40, interrupt_itself);
    char *const area = map(64);
    for (size_t pages = 64; pages >= 16; pages -= 16) {
        stack_t stack = {.ss_sp = area, .ss_size = pages * PAGE};
        sigaltstack(&stack, NULL);
        deep(40, interrupt_itself);
        deep(80, interrupt_itself);
        munmap(area + (pages - 16) * PAGE, 16 * PAGE);
    }
    if (handled != 9)
        wrong("signals", (unsigned long)handled, 0);
}

/* The child of a fork, also of one that runs no handlers and without a part that it does not get. */
static void in_children(void) {
    volatile char room[8 * PAGE];
    char *const page = (char *)(((uintptr_t)room + 3 * PAGE) & ~(uintptr_t)(PAGE - 1));
    room[0] = 1;
    deep(100, compare);
    for (int way = 0; way < 4; way++) {
        if (way >= 2)
            madvise(page, PAGE, MADV_DONTFORK);
        const int child = way & 1 ? (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        if (child == 0) {
            deep(100, compare);
            deep(10, compare);
            _exit(0);
        }
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            wrong("a child", (unsigned long)status, (unsigned long)way);
        madvise(page, PAGE, MADV_DOFORK);
        deep(100, compare);
    }
}

/* Captures between two marks: in each turn as many. */
#define TURNS 3
#define CAPTURES 6
static void *const *context;
NOINLINE static size_t marked(void) {
    uint64_t ours[MOST];
    uint16_t stop = 0;
    syscall(SYS_getppid);
    const size_t count = uu_capture(ours, MOST, context ? *context : NULL, &stop);
    syscall(SYS_getppid);
    if (stop != UU_STOP_COMPLETE)
        wrong("a marked capture", count, stop);
    return count;
}
NOINLINE static void first(void) { marked(); }
NOINLINE static void second(void) { marked(); }
NOINLINE static void third(void) { marked(), marked(); }
static void on_marked(int number, siginfo_t *info, void *ucontext) {
    (void)number, (void)info;
    marked();
    context = &ucontext;
    marked();
    context = NULL;
}
static void *calls(void *unused) {
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = on_marked;
    sigaction(SIGUSR1, &action, NULL);
    for (int turn = 0; turn < TURNS; turn++) {
        deep(60, first);
        deep(20, second);
        deep(40, third);
        deep(30, interrupt_itself);
    }
    return unused;
}

/* Counts the system calls between the marks of a child that does what `calls` does. */
static void count_calls(int in_a_thread) {
    const int child = fork();
    if (child == 0) {
        pthread_t thread;
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        if (in_a_thread)
            pthread_create(&thread, NULL, calls, NULL), pthread_join(thread, NULL);
        else
            calls(NULL);
        _exit(0);
    }
    int status, marks = 0;
    unsigned long counted[2] = {0, 0};
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        wrong("a traced child", (unsigned long)status, 0);
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
    for (int task = child; ptrace(PTRACE_SYSCALL, task, NULL, NULL), (task = waitpid(-1, &status, __WALL)) > 0;) {
        if (WIFEXITED(status) && task == child)
            break;
        while (WIFSTOPPED(status) && WSTOPSIG(status) != (SIGTRAP | 0x80)) {
            const int number = WSTOPSIG(status);
            ptrace(PTRACE_SYSCALL, task, NULL, (void *)(long)(number == SIGTRAP || number == SIGSTOP ? 0 : number));
            task = waitpid(-1, &status, __WALL);
        }
        if (WIFEXITED(status) && task == child)
            break;
        struct __ptrace_syscall_info info;
        if (!WIFSTOPPED(status) || ptrace(PTRACE_GET_SYSCALL_INFO, task, sizeof info, &info) <= 0 ||
            info.op != PTRACE_SYSCALL_INFO_ENTRY)
            continue;
        if (info.entry.nr == SYS_getppid)
            marks++;
        else if (marks & 1)
            counted[marks > 2 * CAPTURES]++;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || marks != 2 * TURNS * CAPTURES)
        wrong("the traced child", (unsigned long)status, (unsigned long)marks);
    printf("at first %lu, then %lu\n", counted[0], counted[1]);
}

int main(int argc, char **argv) {
    const char *const what = argc == 2 ? argv[1] : "";
    void *unwinder[4];
    backtrace(unwinder, 4); /* it loads libgcc */
    if (strcmp(what, "holes") == 0)
        holes();
    else if (strcmp(what, "below") == 0)
        below();
    else if (strcmp(what, "switched") == 0)
        switched();
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "tasks") == 0)
        tasks();
    else if (strcmp(what, "alternate") == 0)
        alternate();
    else if (strcmp(what, "children") == 0)
        in_children();
    else if (strcmp(what, "calls") == 0)
        count_calls(0);
    else if (strcmp(what, "calls-in-a-thread") == 0)
        count_calls(1);
    else
        wrong("unknown case", 0, 0);
    puts("fine");
    return 0;
}
