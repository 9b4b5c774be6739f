/* Parts of functions that seldom run lie in a row, without space between them. The first ones end in calls of a function
   that returns or not, as its argument says; the frame of the middle one is another one than its neighbours'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_LINE __attribute__((noipa))
#define LAST 20

static int reports;

OUT_OF_LINE __attribute__((cold)) static void report(int level, const char *what, long value) {
    fprintf(stderr, "%s: %ld\n", what, value);
    if (level >= LAST)
        exit(level);
    reports++;
}

OUT_OF_LINE static long sum(const char *numbers, long count) {
    long all = 0;
    for (long n = 0; n < count; n++)
        all += numbers[n] * (n + strlen(numbers));
    if (all == 12345) {
        report(LAST, "an impossible sum", all);
        __builtin_unreachable();
    }
    return all;
}

/* Its jump is not understood: what it leads to lies in memory that is written. */
OUT_OF_LINE static long steps(const char *text) {
    static void *next[3];
    char copy[300];
    long count = 0;
    if (!next[0]) {
        next[0] = &&more;
        next[1] = &&less;
        next[2] = &&ends;
    }
    snprintf(copy, sizeof copy, "%s", text);
    goto *next[copy[0] % 3];
more:
    count += (long)strlen(copy);
    if (count > 10000) {
        report(LAST, copy, count);
        __builtin_unreachable();
    }
    goto *next[copy[1] % 3];
less:
    count--;
    goto *next[count % 3];
ends:
    return count + copy[count % 7];
}

OUT_OF_LINE static long last(const char *text, long count) {
    if (count == 54321) {
        report(1, text, count);
        abort();
    }
    return (long)strlen(text) + count;
}

int main(int count, char **names) {
    return (int)(sum(names[0], count) + steps(names[0]) + last(names[0], count)) == reports;
}
