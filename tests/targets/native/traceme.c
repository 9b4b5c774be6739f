/* Asks its parent to trace it (PTRACE_TRACEME), by a thread that argv[1] says; then burns CPU time. */
#include "burn.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void traceme(void) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        perror("PTRACE_TRACEME");
        exit(9);
    }
}

static void *burns(void *seconds) {
    traceme();
    burn(atof(seconds));
    return NULL;
}

static void thread(const char *seconds) {
    pthread_t one;
    pthread_create(&one, NULL, burns, (void *)seconds);
    pthread_join(one, NULL);
}

/* As a debugger: traces a child of its own, and passes on all signals after the first, by which the child stops. */
static int debugs(void) {
    pid_t child = fork();
    if (child == 0) {
        traceme();
        raise(SIGSTOP);
        burn(0.3);
        _exit(4);
    }
    int status;
    waitpid(child, &status, 0);
    printf("stopped %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status));
    while (WIFSTOPPED(status)) {
        int sent = WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
        if (ptrace(PTRACE_CONT, child, NULL, (void *)(long)sent) != 0 || waitpid(child, &status, 0) != child)
            return 8;
    }
    printf("exited %d with %d\n", WIFEXITED(status), WEXITSTATUS(status));
    return 0;
}

int main(int argc, char **argv) {
    const char *who = argc > 1 ? argv[1] : "";
    if (!strcmp(who, "child"))
        return debugs();
    if (!strcmp(who, "thread"))
        thread("0.3");
    /* A thread that meets no tick. */
    if (!strcmp(who, "short"))
        thread("0");
    if (!strcmp(who, "main") || !strcmp(who, "exec"))
        traceme();
    if (!strcmp(who, "exec")) {
        execl("/proc/self/exe", argv[0], "after", NULL);
        return 7;
    }
    burn(0.3);
    printf("burnt\n");
    return 5;
}
