/* A parent, a forked child, and a child that becomes another program: each burns 0.4 s of CPU in a function of its own.
   Usage: family, or family grandchild (the program that the second child becomes) */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned burn(void) {
    unsigned n = 1;
    struct timespec t;
    do {
        for (int i = 0; i < 20000; i++)
            n = n * 1664525u + 1013904223u;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while (t.tv_sec == 0 && t.tv_nsec < 400000000);
    return n;
}

/* Each adds something of its own: the compiler makes one function of those that are the same. */
#define WORKER(name, own) __attribute__((noinline, noclone)) static unsigned name(void) { return burn() + own; }
WORKER(parent_work, 1)
WORKER(forked_work, 2)
WORKER(exec_work, 3)

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "grandchild") == 0)
        return exec_work() == 7;
    if (fork() == 0)
        _exit(forked_work() == 7);
    if (vfork() == 0) {
        execl(argv[0], argv[0], "grandchild", (char *)0);
        _exit(1);
    }
    unsigned n = parent_work();
    int sum = 0, status;
    while (wait(&status) > 0)
        sum += status != 0;
    printf("failed children %d\n", sum + (n == 7));
    return sum;
}
