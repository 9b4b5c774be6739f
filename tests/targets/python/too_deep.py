"""12,000 frames deep: more than are kept. Those nearest the leaf must be right, and the stack must say that it is cut."""

import sys

from snap import snap


def rec(n):
    if n == 0:
        return snap()
    return rec(n - 1)


def main():
    sys.setrecursionlimit(20000)
    rec(12000)


main()
