"""Functions that call each other in every way, sampled after each instruction.

Usage: every.py STRIDE   samples every STRIDE-th instruction (every.c), and prints how many samples were sent
       every.py          writes down instead what a profile function sees at each call and return: a line of JSON with
                         the functions that run, innermost first, as "name:first line"
"""

import ctypes
import json
import os
import sys


def leaf(n):
    return n + 1


def recursive(n):
    if n:
        return recursive(n - 1)
    return leaf(n)


def generator(n):
    for i in range(n):
        yield leaf(i)


def delegating(n):
    yield from generator(n)


def by_c(n):
    return -leaf(n)


class Made:
    def __init__(self, n):
        self.n = leaf(n)

    def __eq__(self, other):
        return leaf(self.n) == other

    def __del__(self):
        leaf(0)

    @property
    def value(self):
        return leaf(self.n)


def raises(n):
    raise KeyError(leaf(n))


def catches():
    try:
        raises(1)
    except KeyError:
        return leaf(2)


def finally_():
    try:
        return leaf(1)
    finally:
        leaf(2)


def keywords(*args, **kwargs):
    return leaf(*args) + leaf(**kwargs)


async def awaited():
    return leaf(1)


async def awaits():
    return await awaited()


def runs(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        pass


def main():
    recursive(3)
    for _ in delegating(2):
        leaf(0)
    sorted([2, 1], key=by_c)
    list(map(by_c, [1, 2]))
    made = [Made(1)]  # up to 3.10, a profile function keeps the values of variables alive
    made[0] == 1
    [1, 2].count(made[0])
    made[0].value
    made.clear()
    catches()
    finally_()
    keywords(1, n=2)
    runs(awaits())
    sum(generator(2))
    (lambda n: leaf(n))(1)


def functions(frame):
    found = []
    while frame is not None:
        if frame.f_code.co_filename == __file__:
            found.append("%s:%d" % (frame.f_code.co_name, frame.f_code.co_firstlineno))
        frame = frame.f_back
    return found


def on_event(frame, event, argument):
    if event in ("call", "return"):
        seen.append(functions(frame if event == "call" else frame.f_back))


if len(sys.argv) > 1:
    every = ctypes.PyDLL(os.environ["UU_TEST_EVERY"])
    begin, end, count, stride = every.every_begin, every.every_end, every.every_steps, ctypes.c_long(int(sys.argv[1]))
    end.restype = count.restype = ctypes.c_long
    main()
    begin(stride)
    main()
    print(end(), "samples in", count(), "instructions")
else:
    seen = []
    main()
    sys.setprofile(on_event)
    main()
    sys.setprofile(None)
    for stack in seen:
        print(json.dumps(stack))
