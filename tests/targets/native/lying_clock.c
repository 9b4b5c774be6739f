/* Preloaded: clocks that lie to whoever asks libc. LIE says how: "frozen", "back", "fast" or "far". The calls that wait
   by such a clock wait for ever: whoever relies on them does not end. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static long calls;
    const char *how = getenv("LIE");
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (failed || !how)
        return (int)failed;
    if (!strcmp(how, "frozen"))
        *time = (struct timespec){.tv_sec = 1000};
    else if (!strcmp(how, "back"))
        time->tv_sec = 4000000000 - 3600 * __sync_add_and_fetch(&calls, 1);
    else if (!strcmp(how, "fast"))
        time->tv_sec *= 100;
    else if (!strcmp(how, "far"))
        time->tv_sec += 50L * 365 * 86400;
    return 0;
}

static void for_ever(void) {
    for (;;)
        syscall(SYS_pause);
}

int nanosleep(const struct timespec *time, struct timespec *rest) {
    for_ever();
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *rest) {
    for_ever();
    return 0;
}

int usleep(useconds_t time) {
    for_ever();
    return 0;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *time) {
    for_ever();
    return 0;
}
