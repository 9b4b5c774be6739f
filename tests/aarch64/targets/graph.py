"""A Python program whose call graph is known: tests/aarch64/machine/check.py has it."""

import sys
import threading
import time


def leaf(n):
    total = n
    for i in range(60):
        total = (total * 31 + i) & 0xFFFF
    return total


def by_key(n):
    return leaf(n) ^ n


def in_sort(n):
    return sorted(range(12), key=by_key)[n % 12]


def deep(n):
    return leaf(n) if n == 0 else deep(n - 1) + leaf(n)


def generator(n):
    for i in range(n):
        yield leaf(i)


def summed(n):
    return sum(generator(n))


def work(seconds):
    end = time.monotonic() + seconds
    n = 0
    while time.monotonic() < end:
        n += 1
        in_sort(n)
        deep(15)
        summed(10)


def main():
    seconds = float(sys.argv[1])
    thread = threading.Thread(target=work, args=(seconds,))
    thread.start()
    work(seconds)
    thread.join()
    print("done")


main()
