/* Has a vfork child burn argv[1] seconds of CPU, while its parent waits in the kernel; exits with argv[2]. */
#include "burn.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argc;
    pid_t child = vfork();
    if (child == 0) {
        burn(atof(argv[1]));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("burnt 1\n");
    return atoi(argv[2]);
}
