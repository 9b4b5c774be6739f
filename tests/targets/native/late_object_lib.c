/* The object that late_object.c loads. */
static volatile unsigned sum;

unsigned work(void) {
    for (unsigned i = 0; i < 100000; i++) sum += i;
    return sum;
}
