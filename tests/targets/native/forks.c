// Forks children that end at once, and prints the minor page faults of each.
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    for (int i = 0; i < 9; i++) {
        struct rusage use;
        int status;
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (child < 0 || wait4(child, &status, 0, &use) != child || status != 0) return 1;
        printf("child %ld\n", use.ru_minflt);
        fflush(stdout);
    }
    return 0;
}
