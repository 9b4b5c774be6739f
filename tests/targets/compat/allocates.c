/* Allocates and computes in functions of its own, for the profilers that it runs under. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *volatile kept[512];
static volatile uint64_t sum;

__attribute__((noinline)) void *innermost(size_t size) {
    char *memory = malloc(size);
    memset(memory, 1, size);
    __asm__ volatile("" : : "r"(memory) : "memory"); /* no tail call */
    return memory;
}
__attribute__((noinline)) void *middle(size_t size) {
    void *memory = innermost(size);
    __asm__ volatile("" : : "r"(memory) : "memory");
    return memory;
}
__attribute__((noinline)) void keeps(int n) {
    for (int i = 0; i < n; i++)
        kept[i] = middle(100000);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) void computes(clock_t until) {
    while (clock() < until)
        for (uint64_t i = 0; i < 100000; i++)
            sum += i ^ sum << 3;
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) void works(int milliseconds) {
    computes(clock() + milliseconds * (CLOCKS_PER_SEC / 1000));
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    keeps(200);
    works(argc > 1 ? atoi(argv[1]) : 1);
    puts("done");
    return 0;
}
