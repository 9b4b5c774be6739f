"""Threads that stand in known functions, for looks from outside. Each writes its own stack, as the interpreter knows
it, as a line of JSON: [name, [[function, line], ...]], innermost first. Then it waits for ever, on the same line."""

import json
import sys
import threading

never = threading.Event()
lock = threading.Lock()


def say():
    frame, stack = sys._getframe(1), []
    while frame is not None:
        stack.append([frame.f_code.co_name, frame.f_lineno])
        frame = frame.f_back
    with lock:
        print(json.dumps([threading.current_thread().name, stack]), flush=True)


def inner():
    say(), never.wait()


def deep(n):
    return deep(n - 1) if n else inner()


class Worker:
    def run(self):
        return [inner() for _ in range(1)]


def generator():
    yield inner()


def through_c():
    return sorted([1, 2], key=lambda _: inner())


for body in [lambda: deep(40), Worker().run, lambda: list(generator()), through_c]:
    threading.Thread(target=body, daemon=True).start()
deep(3)
