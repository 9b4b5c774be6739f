// A library that a program opens: it calls the program back.
__attribute__((noinline)) void of_library(void (*back)(unsigned)) {
    back(1000);
    __asm__ volatile("" ::: "memory");
}
