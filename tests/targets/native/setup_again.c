/* uu_setup() called again, where nothing was loaded meanwhile: it looks at the folder of the plugins, and asks the kernel for
   nothing else but memory. Then another library is loaded, and it does. */
#define _GNU_SOURCE
#include "uu.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile sig_atomic_t refused;

/* The call returns -ENOSYS. */
static void on_refused(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info, (void)ucontext;
    refused++;
}

#define ALLOW(number)                                                                                                 \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* For the calling thread, for ever. */
static int refuse_all_others(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_rt_sigreturn), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_statx), ALLOW(SYS_newfstatat),
        ALLOW(SYS_stat), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_fstat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **arguments) {
    const int first = uu_setup();
    const int loaded = count > 1 && dlopen(arguments[1], RTLD_NOW) != NULL;
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSYS, &action, NULL);
    if (refuse_all_others())
        return printf("no seccomp\n"), 0;
    const int again = uu_setup();
    printf("loaded %d, the same tables %d, asked for more %d\n", loaded, first > 0 && again == first, refused > 0);
    return 0;
}
