"""Calls that begin a new chunk of the data stack, and leave it again, over and over: CPython unmaps a chunk before
anything stops pointing to the frame in it."""

import time


def leaf():
    pass


def at_depth(n):
    if n:
        return at_depth(n - 1)
    for _ in range(200):
        leaf()


def main():
    end = time.process_time() + 1.5
    while time.process_time() < end:
        for depth in range(120):
            at_depth(depth)


main()
