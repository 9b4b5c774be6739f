"""Crashes in C code that Python calls, while another thread waits."""

import ctypes
import threading

ready = threading.Event()


def waits():
    with lock:
        ready.set()
        lock.wait()


def recursion(n):
    if n:
        recursion(n - 1)
    else:
        ctypes.string_at(0)


class Caller:
    def method(self):
        recursion(3)


lock = threading.Condition()
threading.Thread(target=waits, name="waits", daemon=True).start()
ready.wait()
with lock:
    pass
Caller().method()
