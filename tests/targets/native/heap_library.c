/* A library that allocates, for heap_phases.cpp. */
#include <stdlib.h>

__attribute__((noinline)) void *phase_library(size_t size) {
    void *volatile made = malloc(size);
    return made;
}
