/* Opens a file over and over, as a shell does for its redirections, and closes numbers that it has not open: each file
   must get the lowest number that the program itself has free. It writes "ready". "end" on standard input ends it with
   0, or with 1 if a number was another one. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    int first = open("/dev/null", O_RDONLY), is_wrong = 0;
    close(first);
    puts("ready");
    fflush(stdout);
    for (struct pollfd input = {.fd = 0, .events = POLLIN}; poll(&input, 1, 0) == 0;) {
        is_wrong |= open("/dev/null", O_RDONLY) != first;
        for (int number = first; number < first + 8; number++)
            is_wrong |= close(number) != 0 && number == first;
    }
    return is_wrong;
}
