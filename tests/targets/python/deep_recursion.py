"""950 frames deep."""

from snap import snap

DEPTH = 950


def rec(n):
    if n == 0:
        return snap("E{<module> main " + "rec " * (DEPTH + 1) + "snap} cap")
    return rec(n - 1)


def main():
    rec(DEPTH)


main()
