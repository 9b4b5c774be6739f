"""The program under the benchmark of dumps. The first thread waits in epoll_wait(2), which any stop by a signal or a
debugger ends with EINTR, and writes a line each time that happens; Python's own select.epoll would hide it. Of the
others, one stands in a recursion of 41 calls of `deep`, one in a function that C has called back, and one computes."""

import ctypes
import errno
import threading

libc = ctypes.CDLL(None, use_errno=True)
never = threading.Event()


def inner():
    never.wait()


def deep(n):
    return deep(n - 1) if n else inner()


def through_c():
    return sorted([1, 2], key=lambda _: inner())


def computes():
    while True:
        sum(i * i for i in range(20000))


def waits():
    epoll = libc.epoll_create1(0)
    room = ctypes.create_string_buffer(64)
    while True:
        if libc.epoll_wait(epoll, room, 1, -1) < 0 and ctypes.get_errno() == errno.EINTR:
            print("interrupted", flush=True)


for body in [lambda: deep(40), through_c, computes]:
    threading.Thread(target=body, daemon=True).start()
print("ready", flush=True)
waits()
