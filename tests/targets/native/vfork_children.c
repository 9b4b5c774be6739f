/* One thread spins in known functions; the other begins programs by vfork(2), again and again, whose children stay in
   the program's memory for a tenth of a second each before they call exec. It writes "ready". "end" on standard input
   ends it with 0, or with 1 if a child has ended in another way than it should. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static atomic_int is_over, is_wrong;

KEPT static void spins(void) {
    for (volatile unsigned long turns = 0; !is_over; turns++)
        ;
}

KEPT static void *in_loop(void *unused) {
    spins();
    return unused;
}

static void *begins_programs(void *unused) {
    while (!is_over) {
        pid_t child = vfork();
        if (child == 0) {
            struct timespec moment = {0, 100000000};
            nanosleep(&moment, NULL);
            execl("/bin/true", "true", (char *)NULL);
            _exit(9);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0)
            is_wrong = 1;
    }
    return unused;
}

int main(void) {
    char line[16];
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, in_loop, NULL);
    pthread_create(&threads[1], NULL, begins_programs, NULL);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 2;
    is_over = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return is_wrong;
}
