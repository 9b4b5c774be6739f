/* Burns argv[1] seconds of CPU (1 when absent), then exits with argv[2] (0 when absent). Makes the file argv[3], if
   given, at its start: its existence shows that the program ran. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "burn.h"

int main(int argc, char **argv) {
    if (argc > 3)
        close(open(argv[3], O_CREAT | O_WRONLY, 0600));
    unsigned n = burn(argc > 1 ? atof(argv[1]) : 1.0);
    printf("burnt %d\n", n != 7);
    return argc > 2 ? atoi(argv[2]) : 0;
}
