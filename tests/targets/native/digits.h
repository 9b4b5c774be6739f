/* Puts a number of four digits on the stack, as a chain of calls: 137 is d0, d1, d3, d7, then visit(137). So every sample
   below visit() shows the number that the program was working on, independent of the names in the code that visit() calls. */
static unsigned visit(int number);
static unsigned digit(int number, int place);

#define DIGIT(n) \
    __attribute__((noinline, noclone)) static unsigned d##n(int number, int place) { \
        return digit(number, place + 1) + n + 1; \
    }
DIGIT(0) DIGIT(1) DIGIT(2) DIGIT(3) DIGIT(4) DIGIT(5) DIGIT(6) DIGIT(7) DIGIT(8) DIGIT(9)

static unsigned digit(int number, int place) {
    static unsigned (*const all[])(int, int) = {d0, d1, d2, d3, d4, d5, d6, d7, d8, d9};
    static const int power[] = {1000, 100, 10, 1};
    if (place == 4)
        return visit(number) + 1;
    return all[number / power[place] % 10](number, place) + 1;
}
