/* special LIBRARY: loads it, puts a FIFO in its place, and takes an explicit sample in it. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int leaf(int n) {
    raise(SIGPROF);
    return n;
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library || unlink(argv[1]) || mkfifo(argv[1], 0600))
        return perror("special"), 1;
    int (*honest)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "honest");
    return honest(leaf, 0) == 1 ? 0 : 2;
}
