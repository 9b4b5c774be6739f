/* A 32-bit program that needs no library. */
void _start(void) {
    for (;;)
        __asm__ volatile("pause");
}
