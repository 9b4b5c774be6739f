"""950 frames deep; fewer where a Python frame has many native ones (3.9's debug build), of which 4,096 are kept."""

import sys

from snap import snap

DEPTH = 500 if hasattr(sys, "gettotalrefcount") and sys.version_info < (3, 11) else 950


def rec(n):
    if n == 0:
        return snap("E{<module> main " + "rec " * (DEPTH + 1) + "snap} cap")
    return rec(n - 1)


def main():
    rec(DEPTH)


main()
