/* Prints all that a program can see of its own state: what must be the same under the profiler. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

extern char **environ;

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void print_set(const char *what, const sigset_t *set) {
    printf("%s:", what);
    for (int i = 1; i <= 64; i++)
        if (sigismember(set, i) == 1)
            printf(" %d", i);
    printf("\n");
}

static void print_folder(const char *path, const char *what) {
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    printf("%s: %d\n", what, count);
}

int main(int argc, char **argv) {
    printf("errno at start: %d\n", errno);
    for (int i = 1; i < argc; i++)
        printf("argument: %s\n", argv[i]);
    for (int i = 1; i <= 64; i++) {
        struct sigaction action;
        memset(&action, 0xee, sizeof action);
        int result = sigaction(i, 0, &action);
        if (result)
            printf("signal %d: refused, errno %d\n", i, errno);
        else
            printf("signal %d: %s flags %#x\n", i, action.sa_handler == SIG_DFL ? "default" :
                action.sa_handler == SIG_IGN ? "ignored" : "handled", (unsigned)action.sa_flags);
    }
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    print_set("blocked", &set);
    sigpending(&set);
    print_set("pending", &set);
    stack_t stack;
    sigaltstack(0, &stack);
    printf("alternate stack: flags %d size %zu\n", stack.ss_flags, stack.ss_size);
    struct itimerval timer;
    getitimer(ITIMER_PROF, &timer);
    printf("ITIMER_PROF: %ld %ld\n", timer.it_value.tv_sec, timer.it_interval.tv_sec);
    print_folder("/proc/self/fd", "open files");
    print_folder("/proc/self/task", "threads");
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        getrlimit(i, &limit);
        printf("limit %d: %ld %ld\n", i, (long)limit.rlim_cur, (long)limit.rlim_max);
    }
    printf("dumpable %d, no new privileges %d, session leader %d\n", prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        getsid(0) == getpid());
    int count = 0;
    while (environ[count])
        count++;
    qsort(environ, (size_t)count, sizeof *environ, by_text);
    for (int i = 0; i < count; i++)
        printf("environment: %s\n", environ[i]);
    return 0;
}
