/* opens_operators LIBRARY... - a program of C that opens libraries, each of which has operators new and delete of its
 * own, for itself alone. Prints how many blocks each of them has taken: as alone. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return puts(dlerror()), 1;
        void (*use)(void) = (void (*)(void))dlsym(library, "own_use");
        unsigned long (*number)(void) = (unsigned long (*)(void))dlsym(library, "own_number");
        for (int round = 0; round < 10 * i; round++)
            use();
        printf("%lu\n", number());
    }
    return dlsym(RTLD_DEFAULT, "_Znwm") != 0;
}
