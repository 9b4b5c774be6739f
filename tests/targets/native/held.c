/* Threads that wait for what others hold, each a line on standard output: what it waits for ("mutex", "rwlock",
   "thread", "stdio", or "nothing" that a look from outside may name), its id, and the holder's id, or how many readers hold it.
   Then the program writes "ready"; "end" on standard input ends it. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KINDS 7

static pthread_mutex_t kinds[KINDS], self_lock = PTHREAD_MUTEX_INITIALIZER, one = PTHREAD_MUTEX_INITIALIZER,
                                     two = PTHREAD_MUTEX_INITIALIZER, quiet = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, read_by_two = PTHREAD_RWLOCK_INITIALIZER,
                        strict = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_cond_t never_signalled = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t never_full;
static sem_t never_posted, go;
static pthread_mutex_t *elsewhere;
static pthread_t holder_thread;
static struct timespec far;
static FILE *stream;
static volatile int last_tid, in_handler, in_second;

/* It looks like a mutex and is none. */
static struct { int lock, count, owner, users, kind, rest[5]; } fake = {2, 0, 0, 1, 0, {0}};

static void there(void) { last_tid = (int)syscall(SYS_gettid); }

static void sleeps_for_ever(void) {
    there();
    for (;;)
        pause();
}

static void *holder(void *unused) {
    for (int i = 0; i < KINDS; i++)
        pthread_mutex_lock(&kinds[i]);
    pthread_rwlock_wrlock(&written);
    flockfile(stream);
    flockfile(stream);
    sleeps_for_ever();
    return unused;
}
static void *reads(void *lock) { pthread_rwlock_rdlock(lock); sleeps_for_ever(); return lock; }
static void *wants_mutex(void *lock) { there(); pthread_mutex_lock(lock); return lock; }
static void *wants_mutex_for_a_while(void *lock) { there(); pthread_mutex_timedlock(lock, &far); return lock; }
static void *wants_to_read(void *lock) { there(); pthread_rwlock_rdlock(lock); return lock; }
static void *wants_to_read_for_a_while(void *lock) { there(); pthread_rwlock_timedrdlock(lock, &far); return lock; }
static void *wants_to_write(void *lock) { there(); pthread_rwlock_wrlock(lock); return lock; }
static void *wants_to_print(void *unused) { there(); fputs("x", stream); return unused; }
static void *wants_to_format(void *unused) { there(); fprintf(stream, "%d", 1); return unused; }
static void *wants_its_end(void *unused) { there(); pthread_join(holder_thread, NULL); return unused; }
static void *wants_itself(void *lock) { pthread_mutex_lock(lock); there(); pthread_mutex_lock(lock); return lock; }
static void *first(void *unused) {
    pthread_mutex_lock(&one);
    there();
    while (sem_wait(&go))
        ;
    in_second = 1;
    pthread_mutex_lock(&two);
    return unused;
}
static void *second(void *unused) { pthread_mutex_lock(&two); there(); pthread_mutex_lock(&one); return unused; }
static void *in_condition(void *unused) {
    pthread_mutex_lock(&quiet);
    there();
    for (;;)
        pthread_cond_wait(&never_signalled, &quiet);
    return unused;
}
static void *in_semaphore(void *unused) { there(); for (;;) sem_wait(&never_posted); return unused; }
static void *in_barrier(void *unused) { there(); pthread_barrier_wait(&never_full); return unused; }
static void *in_own_futex(void *unused) {
    there();
    for (;;)
        syscall(SYS_futex, &fake.lock, FUTEX_WAIT_PRIVATE, 2, NULL);
    return unused;
}
static void handler(int unused) {
    (void)unused;
    in_handler = 1;
    for (;;)
        sem_wait(&never_posted);
}

static int sleeps(int tid) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    size_t len = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[len] = 0;
    char *end = strrchr(line, ')');
    return end != NULL && end[1] != 0 && end[2] == 'S';
}

static void wait_for(volatile int *flag, int *tid) {
    while (!*flag || !sleeps(tid ? *tid : *flag))
        sched_yield();
}

/* Starts a thread, and waits until it waits. */
static int begin(pthread_t *thread, void *(*body)(void *), void *argument) {
    pthread_t own;
    last_tid = 0;
    if (pthread_create(thread ? thread : &own, NULL, body, argument) != 0)
        exit(4);
    wait_for(&last_tid, NULL);
    return last_tid;
}

static void say(const char *what, int tid, long holder) { printf("%s %d %ld\n", what, tid, holder); }

static void make(int index, int type, int robust, int protocol, int shared) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setrobust(&attributes, robust);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    pthread_mutexattr_setpshared(&attributes, shared);
    if (pthread_mutex_init(&kinds[index], &attributes) != 0)
        exit(5);
}

/* A mutex that another process holds. */
static int held_elsewhere(void) {
    int said[2];
    char byte;
    pthread_mutexattr_t attributes;
    elsewhere = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(elsewhere, &attributes);
    if (pipe(said) != 0)
        exit(6);
    int child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_mutex_lock(elsewhere);
        if (write(said[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    if (read(said[0], &byte, 1) != 1)
        exit(7);
    return child;
}

int main(void) {
    char line[16];
    int child = held_elsewhere();
    clock_gettime(CLOCK_REALTIME, &far);
    far.tv_sec += 1000000;
    sem_init(&never_posted, 0, 0);
    sem_init(&go, 0, 0);
    pthread_barrier_init(&never_full, NULL, 2);
    signal(SIGUSR1, handler);
    int private = PTHREAD_PROCESS_PRIVATE, none = PTHREAD_PRIO_NONE, stalled = PTHREAD_MUTEX_STALLED;
    make(0, PTHREAD_MUTEX_NORMAL, stalled, none, private);
    make(1, PTHREAD_MUTEX_RECURSIVE, stalled, none, private);
    make(2, PTHREAD_MUTEX_ERRORCHECK, stalled, none, private);
    make(3, PTHREAD_MUTEX_ADAPTIVE_NP, stalled, none, private);
    make(4, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, none, private);
    make(5, PTHREAD_MUTEX_NORMAL, stalled, PTHREAD_PRIO_INHERIT, private);
    make(6, PTHREAD_MUTEX_NORMAL, stalled, none, PTHREAD_PROCESS_SHARED);

    stream = fopen("/dev/null", "w");
    int owner = begin(&holder_thread, holder, NULL);
    fake.owner = owner;
    say("nothing", owner, 0);
    for (int i = 0; i < KINDS; i++)
        say("mutex", begin(NULL, wants_mutex, &kinds[i]), owner);
    say("mutex", begin(NULL, wants_mutex_for_a_while, &kinds[0]), owner);
    say("rwlock", begin(NULL, wants_to_read, &written), owner);
    say("rwlock", begin(NULL, wants_to_read_for_a_while, &written), owner);
    say("rwlock", begin(NULL, wants_to_write, &written), owner);
    say("rwlock", begin(NULL, wants_to_write, &written), owner);
    say("nothing", begin(NULL, reads, &read_by_two), 0);
    say("nothing", begin(NULL, reads, &read_by_two), 0);
    say("readers", begin(NULL, wants_to_write, &read_by_two), 2);
    say("nothing", begin(NULL, reads, &strict), 0);
    say("readers", begin(NULL, wants_to_write, &strict), 1);
    say("readers", begin(NULL, wants_to_read, &strict), 1);
    say("stdio", begin(NULL, wants_to_print, NULL), owner);
    say("stdio", begin(NULL, wants_to_format, NULL), owner);
    say("thread", begin(NULL, wants_its_end, NULL), owner);
    int own = begin(NULL, wants_itself, &self_lock);
    say("mutex", own, own);

    int a = begin(NULL, first, NULL), b = begin(NULL, second, NULL);
    sem_post(&go);
    wait_for(&in_second, &a);
    say("mutex", a, b);
    say("mutex", b, a);

    say("nothing", begin(NULL, in_condition, NULL), 0);
    say("nothing", begin(NULL, in_semaphore, NULL), 0);
    say("nothing", begin(NULL, in_barrier, NULL), 0);
    say("nothing", begin(NULL, in_own_futex, NULL), 0);
    say("nothing", begin(NULL, wants_mutex, elsewhere), 0);
    pthread_t thread;
    int interrupted = begin(&thread, wants_mutex, &kinds[0]);
    pthread_kill(thread, SIGUSR1);
    wait_for(&in_handler, &interrupted);
    say("nothing", interrupted, 0);
    puts("ready");
    fflush(stdout);
    int ended = fgets(line, sizeof line, stdin) != NULL;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    _exit(ended ? 0 : 2);
}
