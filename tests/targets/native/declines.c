/* A program into which no sampler may be put, for the reason that its argument names: it ignores, handles or blocks the
   sampler's signal, handles a signal of Go's runtime on an alternate stack, has a filter of system calls, or locks all that
   it maps. It writes "ready", and ends with 0 after a line on standard input. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void handler(int signal) {
    (void)signal;
}

int main(int count, char **arguments) {
    static char small[16384];
    const char *what = count > 1 ? arguments[1] : "";
    char line[16];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    if (strcmp(what, "ignores") == 0)
        signal(SIGSTKFLT, SIG_IGN);
    if (strcmp(what, "handles") == 0)
        sigaction(SIGSTKFLT, &action, NULL);
    if (strcmp(what, "blocks") == 0) {
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    if (strcmp(what, "alternate") == 0) {
        stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
        sigaltstack(&stack, NULL);
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGURG, &action, NULL);
    }
    if (strcmp(what, "seccomp") == 0) {
        struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog filter = {1, all};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
            return 2;
    }
    if (strcmp(what, "locks") == 0 && mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        return 3;
    puts("ready");
    fflush(stdout);
    /* It uses CPU time until then. */
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, 0) == 0)
        ;
    return fgets(line, sizeof line, stdin) == NULL;
}
