/* A library whose constructor uses 0.3 s of CPU time. */
#include "burn.h"

__attribute__((constructor)) static void at_load(void) {
    (void)burn(0.3);
}
