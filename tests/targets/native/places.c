/* Every kind of stack that C can make, each with the functions that the program expects on it. */
#define _GNU_SOURCE
#include "point.h"

#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int sink;

NOINLINE static void leaf(void) {
    point("leaf", "point,leaf,main");
    STAY;
}

NOINLINE static void with_alloca(size_t size) {
    char *buffer = alloca(size);
    memset(buffer, 1, size);
    sink += buffer[size / 2];
    point("alloca", "point,with_alloca,main");
    sink += buffer[0];
}

NOINLINE static void realigned(int n) {
    _Alignas(64) volatile char line[256];
    char *more = alloca((size_t)n);
    line[0] = more[0] = (char)n;
    point("realigned", "point,realigned,main");
    sink += line[0] + more[0];
}

NOINLINE static int tail_target(const char *label) {
    point(label, "point,tail_target,tail_user,main");
    STAY;
    return sink;
}

NOINLINE static int tail_jump(void) {
    return tail_target("tail_call"); /* a jump: this function is not on the stack */
}

NOINLINE static void tail_user(void) {
    sink += tail_jump();
    STAY;
}

static jmp_buf back;

NOINLINE __attribute__((noreturn)) static void never_returns(void) {
    point("noreturn", "point,never_returns,calls_noreturn,main");
    longjmp(back, 1);
}

/* The call is the last instruction: the return address belongs to the function that follows. */
NOINLINE __attribute__((noreturn)) static void calls_noreturn(void) {
    never_returns();
}

NOINLINE static void recurse(int n) {
    volatile char room[40];
    room[0] = (char)n;
    if (n == 0)
        point("recursion", "point,recurse,recurse,recurse,recurse,recurse,recurse,main");
    else
        recurse(n - 1);
    sink += room[0];
}

static const char *volatile chain_in_handler; /* raise() is declared as calling nothing back */

NOINLINE static void on_usr2(int signal_number) {
    sink += signal_number;
    point("handler", chain_in_handler);
    STAY;
}

NOINLINE static void on_usr1(int signal_number) {
    sink += signal_number;
    raise(SIGUSR2);
    STAY;
}

static sigjmp_buf after_fault;

NOINLINE static void on_segv(int signal_number) {
    sink += signal_number;
    point("fault_handler", "point,on_segv,*,faults,main");
    siglongjmp(after_fault, 1);
}

NOINLINE static void faults(volatile int *where) {
    *where = 1;
    STAY;
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(number, &action, 0);
}

NOINLINE static void in_handlers(void) {
    handle(SIGUSR2, on_usr2, 0);
    chain_in_handler = "point,on_usr2,*,in_handlers,main";
    raise(SIGUSR2);
    handle(SIGUSR1, on_usr1, 0);
    chain_in_handler = "point,on_usr2,*,on_usr1,*,in_handlers,main";
    raise(SIGUSR1);
    STAY;
}

NOINLINE static void on_alternate_stack(void) {
    size_t size = 64 * 1024;
    stack_t stack = {.ss_sp = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = size};
    sigaltstack(&stack, 0);
    handle(SIGUSR2, on_usr2, SA_ONSTACK);
    chain_in_handler = "point,on_usr2,*,on_alternate_stack,main";
    raise(SIGUSR2);
    handle(SIGUSR1, on_usr1, SA_ONSTACK);
    chain_in_handler = "point,on_usr2,*,on_usr1,*,on_alternate_stack,main";
    raise(SIGUSR1);
    handle(SIGSEGV, on_segv, SA_ONSTACK);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, 0);
}

NOINLINE static int compare(const void *a, const void *b) {
    point("through_libc", "point,compare,*,through_libc,main");
    return *(const int *)a - *(const int *)b;
}

NOINLINE static void through_libc(void) {
    int numbers[2] = {2, 1};
    qsort(numbers, 2, sizeof *numbers, compare);
    sink += numbers[0];
}

NOINLINE static void called_back(void) {
    point("dlopened", "point,called_back,plugin_calls,through_dlopen,main");
    STAY;
}

NOINLINE static void through_dlopen(const char *path) {
    void *object = dlopen(path, RTLD_NOW);
    void (*plugin_calls)(void (*)(void)) = object ? dlsym(object, "plugin_calls") : 0;
    if (!plugin_calls) {
        fprintf(stderr, "dlopen: %s\n", dlerror());
        exit(1);
    }
    plugin_calls(called_back);
    dlclose(object);
}

NOINLINE static void *thread_body(void *argument) {
    point("thread", "point,thread_body,*");
    return argument;
}

NOINLINE static void in_thread(size_t stack_size) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack_size);
    if (pthread_create(&thread, &attributes, thread_body, 0))
        exit(1);
    pthread_join(thread, 0);
}

static ucontext_t home, away;

NOINLINE static void coroutine(void) {
    point("coroutine", "point,coroutine,*");
    STAY;
}

NOINLINE static void in_coroutine(void) {
    static char stack[64 * 1024];
    getcontext(&away);
    away.uc_stack.ss_sp = stack;
    away.uc_stack.ss_size = sizeof stack;
    away.uc_link = &home;
    makecontext(&away, coroutine, 0);
    swapcontext(&home, &away);
}

int main(int argc, char **argv) {
    leaf();
    with_alloca(1000 + (size_t)argc);
    realigned(100 + argc);
    tail_user();
    if (!setjmp(back))
        calls_noreturn();
    recurse(5);
    in_handlers();
    handle(SIGSEGV, on_segv, 0);
    if (!sigsetjmp(after_fault, 1))
        faults(0);
    on_alternate_stack();
    if (!sigsetjmp(after_fault, 1))
        faults(0);
    through_libc();
    through_dlopen(argv[1]);
    in_thread(1 << 20);
    in_coroutine();
    printf("done %d\n", sink != 0);
    return 0;
}
