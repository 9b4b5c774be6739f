/* A module of PUC Lua whose function crashes. It uses nothing of Lua's. */
int luaopen_crash_module(void *state);
__attribute__((noinline, noipa)) static void crash_in_module(void) {
    *(volatile int *)0 = 1;
    __asm__ volatile("" ::: "memory");
}
int luaopen_crash_module(void *state) {
    (void)state;
    crash_in_module();
    __asm__ volatile("" ::: "memory");
    return 0;
}
