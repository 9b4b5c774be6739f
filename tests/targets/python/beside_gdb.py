"""Python calls C, which calls Python, which calls C, which walks the stack and stops for a debugger.

Usage: beside_gdb.py OBJECT, of native/beside_gdb.c
"""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
callback = ctypes.CFUNCTYPE(None)
assert library.prepare() > 0


def inner():
    library.seen()


@callback
def called():
    inner()


class Outer:
    def method(self):
        library.through(called)


Outer().method()
