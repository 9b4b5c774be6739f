/* A function that ends in a call of error(3), which does not return there. What follows is a function that is never
   called by its address in a call, and that never returns. */
#include <error.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define OUT_OF_LINE __attribute__((noinline, noclone))

OUT_OF_LINE static size_t lengths(char **names, int count) {
    size_t length = 0;
    for (int n = 0; n < count; n++) {
        if (!*names[n])
            error(2, 0, "%s: argument %d is empty", names[0], n);
        length += strlen(names[n]);
    }
    return length;
}

OUT_OF_LINE static void stops(int number) {
    char text[] = "stopped by signal 00\n";
    text[sizeof text - 3] += number % 10;
    text[sizeof text - 4] += number / 10;
    if (write(1, text, sizeof text - 1) < 0)
        _exit(3);
    _exit(4);
}

OUT_OF_LINE static int only_warns(int status, char **names) {
    char copy[100];
    strncpy(copy, names[0], sizeof copy - 1)[sizeof copy - 1] = 0;
    error(status, 0, "%s", copy);
    return (int)strlen(copy) + status;
}

int main(int count, char **names) {
    signal(SIGTERM, stops);
    return lengths(names, count) + only_warns(count - 1, names) == 0;
}
