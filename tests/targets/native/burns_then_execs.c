/* Burns argv[1] seconds of CPU, then executes argv[2] and what follows with an empty environment. */
#include "burn.h"
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char *none[] = {NULL};
    if (argc < 3)
        return 9;
    burn(atof(argv[1]));
    execve(argv[2], argv + 2, none);
    return 8;
}
