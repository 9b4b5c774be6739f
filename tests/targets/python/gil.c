/* Takes explicit samples of a thread that waits for the GIL, from one that holds it. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long waiter;
static atomic_int is_held;

/* The caller returns to Python next: it has to take the GIL for it, which another thread holds by then. */
void returns_to_python(void) {
    while (!atomic_load(&is_held)) {
    }
    atomic_store(&waiter, syscall(SYS_gettid));
}

/* Whether a file of the waiter's folder in /proc has a line that begins so. */
static int says(const char *file, const char *wanted) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/task/%ld/%s", atomic_load(&waiter), file);
    FILE *f = fopen(path, "r");
    int found = 0;
    while (f && fgets(line, sizeof line, f))
        found |= strncmp(line, wanted, strlen(wanted)) == 0;
    if (f)
        fclose(f);
    return found;
}

static void sample(void) {
    syscall(SYS_tgkill, getpid(), atomic_load(&waiter), SIGPROF);
    while (!says("status", "SigPnd:\t0000000000000000")) {
    }
}

/* To be called with the GIL held: signals the thread that waits for it, some times once it is in futex(2), then one
   signal upon the other, so that it hardly comes back into the call. In one call: between two, the GIL may be given up. */
void sample_waiter(int in_call, int anywhere) {
    char futex[16];
    snprintf(futex, sizeof futex, "%d ", (int)SYS_futex);
    atomic_store(&is_held, 1);
    while (atomic_load(&waiter) == 0) {
    }
    for (int n = 0; n < in_call; n++) {
        while (!says("syscall", futex)) {
        }
        sample();
    }
    for (int n = 0; n < anywhere; n++)
        sample();
}
