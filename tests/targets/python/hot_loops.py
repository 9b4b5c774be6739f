"""Hot loops that call Python and C functions: where the JIT is on (PYTHON_JIT=1), they run in its code."""

from snap import snap, snap_released

ROUNDS = 12000


def leaf(i):
    if i % 3000 == 2999:
        snap()
        snap_released()
    return i & 7


def loop(n):
    total = 0
    for i in range(n):
        total += leaf(i)
    return total


def numbers(n):
    for i in range(n):
        yield leaf(i)


def over_generator(n):
    total = 0
    for i in numbers(n):
        total += i
    return total


def callbacks(n):
    for i in range(n):
        sorted((i,), key=leaf)


def main():
    loop(ROUNDS)
    over_generator(ROUNDS)
    callbacks(ROUNDS)


main()
