"""Recursion: Python calling Python stays in one activation of the interpreter."""

from snap import snap


def rec(n):
    if n == 0:
        return snap("E{<module> main rec rec rec rec rec rec snap} @_ctypes @libffi cap")
    return rec(n - 1)


def main():
    rec(5)


main()
