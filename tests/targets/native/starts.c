/* The pages that a short program touches because it is recorded: minor page faults of a child that does nothing, recorded and not, in turn, and
 * those of its first sample. Prints "alone N", "recorded N" and "first sample N", each ROUNDS times. */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 9 };

extern char **environ;

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/* Page faults of a child from its start to its end. */
static long child(char *self, char **environment)
{
    char *arguments[] = { self, "nothing", NULL };
    struct rusage usage;
    int status;
    pid_t pid;
    if (posix_spawn(&pid, self, NULL, NULL, arguments, environment) != 0 || wait4(pid, &status, 0, &usage) != pid || status != 0)
        exit(1);
    return usage.ru_minflt;
}

static int sample(void)
{
    faults(); /* bound, and its code touched */
    long before = faults();
    raise(SIGPROF);
    printf("first sample %ld\n", faults() - before);
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return strcmp(arguments[1], "sample") == 0 ? sample() : 0;
    char *plain[1024];
    int kept = 0;
    for (char **entry = environ; *entry != NULL && kept < 1023; entry++)
        if (strncmp(*entry, "LD_PRELOAD=", 11) != 0 && strncmp(*entry, "UU_", 3) != 0)
            plain[kept++] = *entry;
    plain[kept] = NULL;
    for (int round = 0; round < ROUNDS; round++) {
        printf("alone %ld\n", child(arguments[0], plain));
        printf("recorded %ld\n", child(arguments[0], environ));
        fflush(stdout);
        char *self[] = { arguments[0], "sample", NULL };
        pid_t pid;
        int status;
        if (posix_spawn(&pid, arguments[0], NULL, NULL, self, environ) != 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
    }
    return 0;
}
