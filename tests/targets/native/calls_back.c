/* A small library without any other: calls back, from a frame of its own. */
__attribute__((noinline)) int calls_back(int (*function)(void *), void *argument) {
    volatile int kept = 1;
    int result = function(argument);
    return result + kept;
}
