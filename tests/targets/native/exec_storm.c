/* Executes itself again and again, each time after some work, so that a timer of its CPU time is due in many an exec:
 * by execv, by a system call of its own, and by a thread other than the main one. Arguments: rounds left. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char *next[3];

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void again(int how) {
    if (how == 0)
        execv(next[0], next);
    long result;
    const char *path = next[0];
    char *const *arguments = next;
    char *const none[] = {NULL};
    register char *const *environment __asm__("rdx") = how == 1 ? environ : none;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_execve), "D"(path), "S"(arguments), "r"(environment)
                     : "rcx", "r11", "memory");
    fprintf(stderr, "exec: %s\n", strerror((int)-result));
    _exit(1);
}

static void *in_thread(void *argument) {
    again((int)(long)argument);
    return NULL;
}

int main(int count, char **arguments) {
    int left = count > 1 ? atoi(arguments[1]) : 0;
    /* Long enough for the recorder to find the thread, in most rounds. */
    double until = used() + 0.012;
    while (used() < until) {
    }
    if (left == 0) {
        puts("done");
        return 0;
    }
    /* The last round but five goes on without uu, which the kernel must leave alone as well. */
    int how = left == 5 ? 2 : left % 2;
    char text[16];
    snprintf(text, sizeof text, "%d", left - 1);
    next[0] = arguments[0];
    next[1] = text;
    if (left % 3 == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, in_thread, (void *)(long)how);
        pthread_join(thread, NULL);
    }
    again(how);
}
