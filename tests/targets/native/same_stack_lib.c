/* Calls back out of a frame of ROOM bytes. Its code is as long whatever they are. */
__attribute__((noinline, noclone)) void call(void (*back)(void)) {
    volatile char room[ROOM];
    room[0] = 1;
    back();
    room[1] = room[0];
}
