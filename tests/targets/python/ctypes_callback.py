"""qsort of libc, through ctypes, with a Python comparator: libffi on the way in and on the way back."""

import ctypes

from snap import snap

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
SHAPE = "E{<module> main} @_ctypes @libffi @libc @libffi @_ctypes E{compare snap} @libffi cap"


def compare(a, b):
    snap(SHAPE)
    return a[0] - b[0]


def main():
    libc = ctypes.CDLL("libc.so.6")
    numbers = (ctypes.c_int * 2)(2, 1)
    libc.qsort(numbers, 2, ctypes.sizeof(ctypes.c_int), COMPARE(compare))
    assert list(numbers) == [1, 2]


main()
