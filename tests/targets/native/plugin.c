/* An object that is opened at run time and calls back. */
__attribute__((noinline)) void plugin_calls(void (*back)(void)) {
    volatile char room[100];
    room[0] = 1;
    back();
    room[1] = room[0];
}
