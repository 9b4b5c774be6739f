/* Takes an explicit sample of the calling thread: the sampling signal, sent to oneself. One instruction, no libc, so
   that the innermost frame is this function. */
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

/* Where the target is sampled by a handler of its own (native/walk_samples.c). */
__attribute__((weak)) void before_sample(void);

static long call3(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

__attribute__((noinline)) void cap(void) {
    if (before_sample)
        before_sample();
    call3(SYS_tgkill, call3(SYS_getpid, 0, 0, 0), call3(SYS_gettid, 0, 0, 0), SIGPROF);
    __asm__ volatile("nop");
}

/* The same, for another thread of this process. */
__attribute__((noinline)) void cap_other(long tid) {
    if (before_sample)
        before_sample();
    call3(SYS_tgkill, call3(SYS_getpid, 0, 0, 0), tid, SIGPROF);
}

/* Three levels of native code below Python; the compiler may not turn the calls into jumps. */
__attribute__((noinline)) void n3(void) {
    cap();
    __asm__ volatile("nop");
}

__attribute__((noinline)) void n2(void) {
    n3();
    __asm__ volatile("nop");
}

__attribute__((noinline)) void n1(void) {
    n2();
    __asm__ volatile("nop");
}

static void *native_thread(void *tid) {
    *(long *)tid = call3(SYS_gettid, 0, 0, 0);
    n1();
    return 0;
}

/* A thread that never runs Python takes a sample of itself. Returns its thread id. */
long native_thread_cap(void) {
    pthread_t thread;
    long tid = 0;
    if (pthread_create(&thread, 0, native_thread, &tid) != 0)
        return -1;
    pthread_join(thread, 0);
    return tid;
}
