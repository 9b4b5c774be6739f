"""12,000 frames deep: more than are kept. The innermost and the outermost ones must be right."""

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
