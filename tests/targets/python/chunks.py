"""Calls of a generator function, some of which begin a new chunk of the data stack: the frame is copied into the
generator, and CPython unmaps the chunk before the thread's state stops pointing into it."""

import time


def generates():
    yield


def at_depth(n):
    if n:
        return at_depth(n - 1)
    for _ in range(200):
        generates()


def main():
    end = time.process_time() + 1.5
    while time.process_time() < end:
        for depth in range(90, 240):
            at_depth(depth)


main()
