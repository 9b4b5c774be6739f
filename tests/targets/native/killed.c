/* Processes that are killed at random moments while their threads are sampled: argv[1] children, one after the other, from
   the seed argv[2]. Each thread asks for samples (SIGPROF to itself, `uu record --explicit`); the stack of its n-th one has
   n % 16 + 1 frames of in_level(). Prints for each thread "PID TID SAMPLES": those that were taken for sure. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3 };
struct thread {
    atomic_int tid;
    atomic_uint samples;
};

#define STAYS __attribute__((noinline, noipa, visibility("default")))
STAYS void in_level(int more) {
    if (more > 0)
        in_level(more - 1);
    else
        syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), SIGPROF);
    __asm__ volatile("" ::: "memory");
}

static void pause_for(long nanoseconds) {
    struct timespec t = {0, nanoseconds};
    nanosleep(&t, 0);
}

static void *work(void *argument) {
    struct thread *own = argument;
    own->tid = (int)syscall(SYS_gettid);
    for (;;) {
        in_level((int)(own->samples % 16));
        own->samples++;
        /* Bursts, so that most kills meet one, and pauses, so that the recorder keeps up on a busy machine. */
        if (own->samples % 8 == 0)
            pause_for(1000000);
    }
    return 0;
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 1;
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    size_t size = (size_t)children * THREADS * sizeof(struct thread);
    struct thread *all = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 2;
    for (int child = 0; child < children; child++) {
        struct thread *own = &all[child * THREADS];
        pid_t pid = fork();
        if (pid == 0) {
            for (int i = 1; i < THREADS; i++) {
                pthread_t thread;
                if (pthread_create(&thread, 0, work, &own[i]))
                    _exit(3);
            }
            work(&own[0]);
        }
        /* When all are at work, or a little later. */
        for (int i = 0; i < THREADS; i++)
            while (own[i].samples == 0) {
                pause_for(10000);
                if (waitpid(pid, 0, WNOHANG) != 0)
                    return 5;
            }
        pause_for(rand_r(&seed) % 6000000);
        if (kill(pid, SIGKILL) || waitpid(pid, 0, 0) != pid)
            return 4;
        for (int i = 0; i < THREADS; i++)
            printf("%d %d %u\n", (int)pid, own[i].tid, own[i].samples);
    }
    return 0;
}
