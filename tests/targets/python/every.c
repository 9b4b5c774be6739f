/* every_begin(stride): what follows is sampled at every stride-th instruction, until every_end(), which returns the number
   of samples that were sent.

   The trap flag makes the processor stop after each instruction. The handler of that trap sends the sampling signal,
   which is blocked while the handler runs: it is delivered when the handler returns, at the instruction that was stopped
   at.

   random_begin(ns): until random_end(), which returns the number of samples that were sent (random_sent(): so far),
   another thread sends them, at random moments with this mean distance. None is sent while the last one is pending,
   which the kernel would merge with it, nor while the ring is full: so each one is taken, and what is missing among the
   samples was lost by the sampler. */
#define _GNU_SOURCE
#include "../native/ring.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100
/* More instructions than the program may take. */
#define MOST 20000000

static long steps, samples, stride;

static void need_ring(void) {
    find_ring();
    if (!ring_written) {
        fprintf(stderr, "every: this thread is not recorded, or $UU_TEST_RING is not set\n");
        _exit(3);
    }
}

static void on_trap(int number, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number;
    if (info->si_code == SI_KERNEL) { /* int3: begin or end */
        regs[REG_EFL] ^= TRAP_FLAG;
        return;
    }
    if (++steps > MOST)
        _exit(3);
    if (steps % stride)
        return;
    wait_for_room();
    samples++;
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
}

void every_begin(long every) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGPROF);
    sigaction(SIGTRAP, &action, 0);
    stride = every;
    need_ring();
    __asm__ volatile("int3" ::: "memory");
}

long every_end(void) {
    __asm__ volatile("int3" ::: "memory");
    return samples;
}

long every_steps(void) {
    return steps;
}

static pthread_t sender;
static pid_t target;
static long mean;
static int status;
static volatile int over;

/* Whether the target has not taken the last signal yet. */
static int is_pending(void) {
    char text[4096];
    ssize_t length = pread(status, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = 0;
    const char *mask = strstr(text, "\nSigPnd:");
    if (!mask)
        _exit(4);
    return strtoull(mask + strlen("\nSigPnd:"), 0, 16) >> (SIGPROF - 1) & 1;
}

static void *send(void *argument) {
    unsigned long random = 88172645463325252UL;
    (void)argument;
    prctl(PR_SET_TIMERSLACK, 1UL);
    while (!over) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        struct timespec pause = {.tv_nsec = (long)(random % (2 * (unsigned long)mean))};
        nanosleep(&pause, 0);
        wait_for_room();
        if (!is_pending() && syscall(SYS_tgkill, getpid(), target, SIGPROF) == 0)
            samples++;
    }
    return 0;
}

void random_begin(long ns) {
    sigset_t all, before;
    char path[64];
    need_ring();
    target = (pid_t)syscall(SYS_gettid);
    mean = ns;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", target);
    status = open(path, O_RDONLY | O_CLOEXEC);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&sender, 0, send, 0))
        _exit(3);
    pthread_sigmask(SIG_SETMASK, &before, 0);
}

long random_sent(void) {
    return __atomic_load_n(&samples, __ATOMIC_RELAXED);
}

long random_end(void) {
    over = 1;
    pthread_join(sender, 0);
    close(status);
    return samples;
}
