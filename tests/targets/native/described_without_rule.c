/*
 * A function whose .debug_frame counts the CFA by an operation that no rule can hold (DW_OP_xderef), and that keeps its
 * return address in a register. Its rbp is its caller's: a stack that is stepped by it lacks that caller.
 */
#include <stdint.h>

uint64_t spins(uint64_t count);
__asm__(".cfi_sections .debug_frame\n"
        ".text\n"
        ".globl spins\n"
        ".type spins, @function\n"
        "spins:\n"
        ".cfi_startproc\n"
        ".cfi_escape 0x0f, 0x03, 0x77, 0x00, 0x18\n"
        "pop %r11\n"
        "xor %eax, %eax\n"
        "1: add $1, %rax\n"
        "cmp %rdi, %rax\n"
        "jne 1b\n"
        "push %r11\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size spins, . - spins\n");

__attribute__((noinline)) uint64_t calls(uint64_t count) {
    return spins(count) + 1;
}

int main(void) {
    return calls(600000000) == 0;
}
