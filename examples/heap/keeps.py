"""Keeps memory in two places, and frees what a third one had; then asks the profiler (heap.c) what is live."""

import ctypes


def keep(count):
    return [bytearray(10_000) for _ in range(count)]


def also(count):
    return [bytes(20_000) for _ in range(count)]


def borrow(count):
    return len([bytearray(10_000) for _ in range(count)])


kept = keep(4000), also(800), borrow(4000)
report = getattr(ctypes.CDLL(None), "heap_report", None)
if report:
    report()
