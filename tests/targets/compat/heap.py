"""Keeps 300 blocks of C's heap: heap.py."""

import ctypes

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
kept = []


def inner():
    kept.append(libc.malloc(100_000))


def outer():
    for _ in range(300):
        inner()


outer()
