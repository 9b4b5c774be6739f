"""Python -> code of a JIT (numba) -> C -> Python: a stack through four languages.

argv[1]: the shared object of `native/jit_callback.c`; argv[2]: seconds of CPU time.
"""
import ctypes
import sys
import time

import numba

library = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
library.set_callback.argtypes = [CALLBACK]
library.through_c.argtypes = [ctypes.c_double]
library.through_c.restype = ctypes.c_double
through_c = library.through_c


@CALLBACK
def back_in_python(x):
    total = 0.0
    for i in range(300):
        total += i % 7
    return total + x


@numba.njit
def jit_inner(n):
    total = 0.0
    for i in range(n):
        total += through_c(i)
    return total


@numba.njit
def jit_outer(n):
    total = 0.0
    for i in range(n):
        total += jit_inner(i % 3 + 1) / (total + 1.0)
    return total


def main():
    library.set_callback(back_in_python)
    jit_outer(1)
    end = time.process_time() + float(sys.argv[2])
    while time.process_time() < end:
        jit_outer(50)


main()
