/* Many short threads; then prints how many POSIX timers this process has, as the kernel lists them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *body(void *argument) {
    volatile unsigned n = 1;
    for (int i = 0; i < 20000; i++)
        n = n * 1664525u + 1u;
    return argument;
}

int main(void) {
    for (int i = 0; i < 2000; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, body, 0))
            return 1;
        pthread_join(thread, 0);
    }
    FILE *timers = fopen("/proc/self/timers", "r");
    char line[256];
    int count = 0;
    while (timers && fgets(line, sizeof line, timers))
        count += strncmp(line, "ID:", 3) == 0;
    printf("timers %d\n", timers ? count : -1);
    return 0;
}
