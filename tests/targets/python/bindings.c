/* A C function that Python calls through a binding, and that calls Python back through it. */
static volatile int calls;

__attribute__((noinline)) void outer(void (*back)(void)) {
    back();
    /* So that the call above is no jump. */
    calls++;
}
