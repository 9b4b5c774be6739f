"""A program whose functions measure their own CPU time, for bench/sampling.py. Writes to the file argv[2], as JSON: for
each function of WORK the CPU seconds of its calls, and which function calls which. argv[1]: CPU seconds that it takes,
about."""

import json
import sys
import threading
import time


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def recursion():
    return fib(17)


def key(x):
    return -x % 101


def through_c():
    return sorted(range(2500), key=key)


def squares(n):
    for i in range(n):
        yield i * i % 7


def generator():
    return sum(squares(9000))


class Shape:
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


def objects():
    return sum(Shape(i).area() for i in range(1200))


def native():
    return len(str(3**9000))


def loop():
    total = 0
    for i in range(7000):
        total += i & 3
    return total


WORK = (recursion, through_c, generator, objects, native, loop)
SPENT = {}


def turn(seconds):
    """A turn of all functions, of which each runs for its part of the CPU seconds."""
    for number, function in enumerate(WORK, 1):
        begin = now = time.thread_time()
        while now - begin < seconds * number / 21:
            function()
            now = time.thread_time()
        name = threading.current_thread().name, function.__name__
        SPENT[name] = SPENT.get(name, 0) + now - begin


def thread(seconds):
    for _ in range(10):
        turn(seconds / 10)


def main():
    seconds = float(sys.argv[1])
    other = threading.Thread(target=thread, args=(seconds / 4,), name="other")
    other.start()
    thread(seconds * 3 / 4)
    other.join()
    spent = {}
    for (_, function), seconds in SPENT.items():
        spent[function] = spent.get(function, 0) + seconds
    calls = {
        "<module>": ["main"],
        "main": ["thread"],
        "thread": ["turn"],
        "turn": [function.__name__ for function in WORK],
        "recursion": ["fib"],
        "fib": ["fib"],
        "through_c": ["key"],
        "generator": ["squares"],
        "objects": ["<genexpr>"],
        "<genexpr>": ["__init__", "area"],
    }
    with open(sys.argv[2], "w") as out:
        json.dump({"spent": spent, "calls": calls}, out)


if __name__ == "__main__":
    main()
