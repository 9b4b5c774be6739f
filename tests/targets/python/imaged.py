"""Threads that stand in known functions, for memory images (tests/images/). Each writes its own stack, as the
interpreter knows it, as a line of JSON: [name, [[function, line], ...]], innermost first. Then it waits for ever, where
it said."""

import json
import queue
import sys
import threading

never = threading.Event()
lock = threading.Lock()


def say(ahead=0):
    frame, stack = sys._getframe(1), []
    while frame is not None:
        stack.append([frame.f_code.co_name, frame.f_lineno + (0 if stack else ahead)])
        frame = frame.f_back
    with lock:
        print(json.dumps([threading.current_thread().name, stack]), flush=True)


def inner():
    say(), never.wait()


def deep(n):
    return deep(n - 1) if n else inner()


def generator():
    yield inner()


def through_c():
    return sorted([1, 2], key=lambda _: inner())


def hot():
    items = queue.SimpleQueue()
    for n in range(20_000):
        items.put(n)
    # Where there is a JIT, this loop is its code by the time at which nothing is left.
    say(1)
    for _ in range(1 << 30): items.get()  # fmt: skip


for body in [lambda: deep(40), lambda: list(generator()), through_c, hot]:
    threading.Thread(target=body, daemon=True).start()
deep(3)
