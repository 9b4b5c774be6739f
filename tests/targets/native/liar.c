/* Claims, by the build-id that it is linked with, to be honest.c's library. Its unwind information covers all addresses of that
   library's code with a rule that is wrong there. */
__asm__(".text\n"
        ".globl lie\n"
        ".type lie, @function\n"
        "lie:\n"
        "    .cfi_startproc\n"
        "    .cfi_def_cfa_offset 96\n"
        "    ret\n"
        "    .skip 0x20000, 0x90\n"
        "    .cfi_endproc\n"
        "    .size lie, . - lie\n");
