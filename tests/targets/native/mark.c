/* uu_mark_interpreter() of a whole function. The argument is the size of `loop`, as the symbol table has it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <uu.h>

__attribute__((noinline, noclone)) int loop(int n);
int loop(int n) {
    volatile int sum = 0;
    for (int i = 0; i < n; i++)
        sum += n ^ i;
    return sum;
}

static int data[16] = {1};

static int mark(const char *at, size_t len) { return uu_mark_interpreter(at, len); }

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    const char *start = (const char *)(uintptr_t)loop;
    size_t size = (size_t)atol(argv[1]);
    int whole = mark(start, 0);
    if (whole) { /* no unwind information that can be read in place */
        printf("before %d\n", whole == -ENOENT);
        uu_setup();
        whole = mark(start, 0);
    }
    printf("whole %d\n", whole);
    printf("again %d, first %d, last %d\n", mark(start, 0) == -EEXIST, mark(start, 1) == -EEXIST,
           mark(start + size - 1, 1) == -EEXIST);
    printf("after %d\n", mark(start + size, 1));
    printf("unmark %d %d\n", uu_unmark_interpreter(start + size), uu_unmark_interpreter(start));
    printf("inside %d, data %d, null %d, unowned %d\n", mark(start + 1, 0) == -ENOENT, mark((const char *)data, 0) == -ENOENT,
           mark(0, 0) == -EINVAL, mark((const char *)4096, 0) == -ENOENT);
    return loop(0);
}
