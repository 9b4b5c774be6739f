/* A library to be opened and closed. "NNNN" stands for its number: a test writes other digits over it, in the names of
   its functions and in its build-id, and so makes many libraries of one.

   FRAME: bytes of stack that work_NNNN takes, so that two libraries with the same layout need other unwind rules. */
#ifndef FRAME
#define FRAME 64
#endif
#ifndef TURNS
#define TURNS 20000
#endif

static unsigned turn(unsigned n) {
    for (int i = 0; i < TURNS; i++) {
        n = n * 1664525u + 1013904223u;
        __asm__ volatile("" : "+r"(n));
    }
    return n;
}

__attribute__((noinline)) static unsigned work_NNNN(unsigned n) {
    volatile char room[FRAME];
    room[n % FRAME] = (char)n;
    n = turn(n);
    return n + (unsigned)room[n % FRAME];
}

__attribute__((constructor)) static void begin_NNNN(void) {
    volatile unsigned n = turn(3);
    (void)n;
}

__attribute__((destructor)) static void end_NNNN(void) {
    volatile unsigned n = turn(4);
    (void)n;
}

unsigned enter(unsigned n);
unsigned enter(unsigned n) {
    return work_NNNN(n) + 1;
}

/* Leaves for good: the call is a jump. */
int leave(int (*close)(void *), void *handle);
int leave(int (*close)(void *), void *handle) {
    return close(handle);
}
