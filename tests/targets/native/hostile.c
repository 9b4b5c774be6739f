/* Functions whose unwind information is wrong. Each spins long enough to be sampled. The walk must end with a reason, and the
   program must not notice. */
#include <stdio.h>

/* name, lies: what the function says of its frame. While it runs, rax and rdx hold the arguments `a` and `b`. */
#define LIAR(name, lies) \
    __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n" lies \
            "mov %rsi, %rax\n1: dec %rdi\njnz 1b\nret\n.cfi_endproc\n.size " #name ",.-" #name "\n"); \
    void name(long count, unsigned long a, unsigned long b);

/* An expression that jumps back to its own start for ever: DW_OP_skip -3. */
LIAR(liar_loops, ".cfi_escape 0x0f,0x03,0x2f,0xfd,0xff\n")
/* The frame's address is where nothing is mapped, in the kernel's half, or in no canonical form. */
LIAR(liar_unmapped, ".cfi_def_cfa 0, 0\n")
/* The frame does not move: its caller would be itself. */
LIAR(liar_stands_still, ".cfi_def_cfa 7, 0\n")
/* The caller's frame is on the leaf's side. */
LIAR(liar_inwards, ".cfi_def_cfa 7, -64\n")
/* A stack machine that pops what is not there: DW_OP_plus on an empty stack. */
LIAR(liar_pops, ".cfi_escape 0x0f,0x01,0x22\n")
/* Reads through a pointer that is none: DW_OP_lit8, DW_OP_deref. */
LIAR(liar_derefs, ".cfi_escape 0x0f,0x02,0x38,0x06\n")
/* Grows the expression's stack without end: DW_OP_dup, in a loop. */
LIAR(liar_grows, ".cfi_escape 0x0f,0x06,0x30,0x12,0x2f,0xfc,0xff,0x96\n")
/* An instruction that does not exist: the test puts it in place of this one, since the linker would not take it. */
LIAR(liar_unknown, ".cfi_def_cfa_offset 0x123456\n")
/* The return address is in a register that does not exist. */
LIAR(liar_register, ".cfi_register 16, 14\n.cfi_undefined 14\n")

int main(void) {
    long count = 300000000;
    liar_loops(count, 0, 0);
    liar_unmapped(count, 0x10, 0);
    liar_unmapped(count, 0xffff800000000010, 0);
    liar_unmapped(count, 0x1234567812345678, 0);
    liar_stands_still(count, 0, 0);
    liar_inwards(count, 0, 0);
    liar_pops(count, 0, 0);
    liar_derefs(count, 0, 0);
    liar_grows(count, 0, 0);
    liar_unknown(count, 0, 0);
    liar_register(count, 0, 0);
    printf("done\n");
    return 0;
}
