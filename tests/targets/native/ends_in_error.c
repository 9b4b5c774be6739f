/* Functions that end in a call of error(3), which does not return there; the next function begins after it. */
#include <error.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_LINE __attribute__((noinline, noclone))

OUT_OF_LINE void wrong(const char *what, char **names, int count) {
    size_t length = 0;
    for (int n = 0; n < count; n++)
        length += strlen(names[n]);
    error(2, 0, "%s: %s, %zu", names[0], what, length);
}

OUT_OF_LINE void worse(const char *what, char **names) {
    if (names[1])
        what = strchr(what, names[1][0]);
    error(3, 0, "%s: %s", names[0], what);
}

OUT_OF_LINE void worst(char **names) {
    char *copy = strdup(names[0]);
    error_at_line(4, 0, copy, 1, "%s", names[1]);
}

OUT_OF_LINE int only_warns(int status, char **names) {
    char *copy = strdup(names[0]);
    error(status, 0, "%s", copy);
    free(copy);
    return status + 1;
}

int main(int count, char **names) {
    if (count == 2)
        wrong("two", names, count);
    if (count == 3)
        worse("three", names);
    if (count == 4)
        worst(names);
    return only_warns(count - 1, names);
}
