/* Functions whose rules are looked up one address at a time: with a frame pointer and `leave`, with pushes, without any
 * unwind information, understood and not, and an indirect call through the procedure linkage table. */
#include <stdlib.h>

__asm__(".text\n"
        ".globl bare\n"
        ".type bare, @function\n"
        "bare:\n"
        "    sub $24, %rsp\n"
        "    xor %eax, %eax\n"
        "    add $24, %rsp\n"
        "    ret\n"
        ".size bare, . - bare\n"
        /* Nothing follows of the frame of a function that takes its stack pointer from memory. */
        ".globl lost\n"
        ".type lost, @function\n"
        "lost:\n"
        "    xor %eax, %eax\n"
        "    mov (%rdi), %rsp\n"
        "    ret\n"
        ".size lost, . - lost\n");

int bare(void);

__attribute__((noipa, optimize("no-omit-frame-pointer"))) int framed(int n) {
    volatile char room[64];
    room[n & 63] = 1;
    srand(n);
    return room[0];
}

/* In C++, space::name(int). */
__attribute__((noipa)) int name(int n) __asm__("_ZN5space4nameEi");
int name(int n) {
    return n + 1;
}

__attribute__((noipa)) int pushes(int a, int b, int c) {
    int first = framed(a), second = framed(b), third = framed(c);
    return first * second * third + a * b * c;
}

int main(int argc, char **argv) {
    (void)argv;
    return pushes(argc, argc, argc) + bare() + name(argc) == -1;
}
