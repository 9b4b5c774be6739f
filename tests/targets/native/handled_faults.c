/* Signals of faults after uu_handle_faults(): what was sent, ignored, or handled once, has the effect that it has without
   it, and reads stay guarded. Prints "ok". */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
static sigjmp_buf out;
static volatile sig_atomic_t seen, code;
static void *volatile nothing;

static void on_fault(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)ucontext;
    seen++;
    code = info->si_code;
    siglongjmp(out, 1);
}

static void fault(void) { *(volatile int *)nothing = 1; }

/* The stack of this context cannot be read: a guarded read faults, and is mended. */
static void guarded(void) {
    ucontext_t context;
    uint64_t frames[8];
    uint16_t stop;
    CHECK(!getcontext(&context));
#ifdef __x86_64__
    context.uc_mcontext.gregs[REG_RSP] = 0x1000;
#else
    context.uc_mcontext.sp = 0x1000;
#endif
    uu_capture(frames, 8, &context, &stop);
    CHECK(stop == UU_STOP_UNREADABLE_STACK);
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | flags};
    CHECK(!sigaction(signal, &action, 0));
}

static int status_of(void (*run)(int), int signal) {
    pid_t child = fork();
    if (!child) {
        run(signal);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

/* A fault is mended, then the signal is sent: the default action. */
static void sent(int number) {
    CHECK(signal(number, SIG_DFL) != SIG_ERR);
    CHECK(!uu_handle_faults());
    guarded();
    kill(getpid(), number);
}

static void ignored(int number) {
    CHECK(signal(number, SIG_IGN) != SIG_ERR);
    CHECK(!uu_handle_faults());
    guarded();
    kill(getpid(), number);
    guarded();
    kill(getpid(), number);
    _exit(7);
}

/* A fault cannot be ignored. */
static void ignored_fault(int number) {
    CHECK(signal(number, SIG_IGN) != SIG_ERR);
    CHECK(!uu_handle_faults());
    guarded();
    fault();
}

/* A handler with SA_RESETHAND runs once. */
static void once(int number) {
    handle(number, SA_RESETHAND);
    CHECK(!uu_handle_faults());
    guarded();
    if (!sigsetjmp(out, 1))
        fault();
    CHECK(seen == 1 && code > 0);
    guarded();
    fault();
}

/* What was sent reaches the handler with its siginfo. */
static void sent_to_handler(int number) {
    handle(number, 0);
    CHECK(!uu_handle_faults());
    for (int i = 1; i < 4; i++) {
        if (!sigsetjmp(out, 1))
            kill(getpid(), number);
        CHECK(seen == i && code == SI_USER);
        guarded();
    }
    _exit(7);
}

int main(void) {
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (int i = 0; i < 4; i++) {
        int signal = signals[i], status = status_of(sent, signal);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
        status = status_of(ignored, signal);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        status = status_of(sent_to_handler, signal);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    int status = status_of(ignored_fault, SIGSEGV);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = status_of(once, SIGSEGV);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    puts("ok");
    return 0;
}
