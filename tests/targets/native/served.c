/* A service: works a little, again and again, in one chain of functions. For a line of its standard input it writes how
 * often it has worked, and the CPU time that it has used, in ns. It ends with its standard input. */
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static unsigned long rounds;

__attribute__((noinline)) static void spins(void) {
    for (int i = 0; i < 2000000; i++) {
        sink += i;
    }
}

__attribute__((noinline)) static void serves(void) {
    spins();
    rounds++;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    for (;;) {
        serves();
        struct pollfd input = {.fd = 0, .events = POLLIN};
        if (poll(&input, 1, 5) > 0) {
            char line[64];
            if (read(0, line, sizeof line) <= 0) {
                return 7;
            }
            struct timespec used;
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            printf("%lu %lld\n", rounds, used.tv_sec * 1000000000LL + used.tv_nsec);
            fflush(stdout);
        }
    }
}
