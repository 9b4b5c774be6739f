/* A libuunwind of another version, as far as the module uunwind looks. */
unsigned uu_abi(void) { return ABI; }
