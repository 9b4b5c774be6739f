"""Functions that call each other in every way, sampled after each instruction. Where the JIT is on (PYTHON_JIT=1),
loops run in its code.

Usage: every.py STRIDE   samples every STRIDE-th instruction (every.c), and prints how many samples were sent
       every.py SECONDS NS   samples at random moments for so long, at this mean distance, and prints that number
       every.py          writes down instead what a profile function sees at each call and return: a line of JSON with
                         the functions that run, innermost first, as "name:first line"
"""

import ctypes
import functools
import json
import os
import re
import signal
import sys
import time

# Iterations after which a loop runs in the JIT's code.
HOT = 6000 if os.environ.get("PYTHON_JIT") == "1" else 0
ROUNDS = 80 if HOT else 8
seen = None  # what the profile function sees
callers = []  # in 3.9, functions that gen.throw() hides


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


def hidden():
    """Notes the functions that gen.throw() hides from here on, or that it hides none any more."""
    if seen is not None:
        callers[:] = [] if callers else functions(sys._getframe(1))


def throws():
    hidden()
    generator = waits_below()
    next(generator)
    generator.throw(ValueError(1))
    generator.close()
    hidden()


def waits_below():
    yield from waits()


def waits():
    try:
        yield leaf(1)
    except ValueError:
        yield leaf(2)
    finally:
        leaf(3)


async def counts(n):
    for i in range(n):
        yield leaf(i)


async def iterates():
    async for i in counts(2):
        leaf(i)
    return [leaf(i) async for i in counts(1)]


class Context:
    def __enter__(self):
        return leaf(1)

    def __exit__(self, *what):
        return leaf(2)


def manages():
    with Context():
        raises(1)


def executes(code=compile("leaf(1)", __file__, "exec")):
    exec(code)
    return [leaf(i) for i in (1, 2)]


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def compares(one, other):
    return leaf(0)


def by_libc(items=(ctypes.c_int * 2)(2, 1), sort=ctypes.CDLL(None).qsort):
    sort(items, 2, 4, compares)


def on_signal(number, frame):
    leaf(number)


def interrupts():
    signal.raise_signal(signal.SIGUSR1)
    return leaf(1)


def loops(n):
    for i in range(n):
        leaf(i)
        i % 7
    for i in generator(n // 4):
        pass


def more():
    throws()
    runs(iterates())
    manages()
    executes()
    by_libc()
    if sys.version_info >= (3, 11):  # earlier, a handler interrupts the profile function, which then does not see it
        interrupts()
    functools.reduce(lambda a, b: leaf(a), [1, 2, 3])
    re.sub("a", lambda match: str(leaf(1)), "a")
    max(map(by_c, (1, 2)), key=by_c)
    [Made(i) for i in range(3)]
    loops(ROUNDS)


def main():
    more()
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
    return found + callers if found and found[-1] != "<module>:1" else found


def on_event(frame, event, argument):
    if event in ("call", "return"):
        # gen.throw() links a generator that delegates before the one that it delegates to.
        seen.append(functions(frame.f_back))
    if event == "call":
        seen.append(functions(frame))


signal.signal(signal.SIGUSR1, on_signal)
if len(sys.argv) > 2:
    every, until = ctypes.PyDLL(os.environ["UU_TEST_EVERY"]), time.monotonic() + float(sys.argv[1])
    every.random_end.restype = every.random_sent.restype = ctypes.c_long
    every.random_begin(ctypes.c_long(int(sys.argv[2])))
    # On a busy machine few are sent in that time.
    while time.monotonic() < until or every.random_sent() < 1500:
        main()
    print(every.random_end(), "samples")
elif len(sys.argv) > 1:
    every = ctypes.PyDLL(os.environ["UU_TEST_EVERY"])
    begin, end, count, stride = every.every_begin, every.every_end, every.every_steps, ctypes.c_long(int(sys.argv[1]))
    end.restype = count.restype = ctypes.c_long
    for _ in range(20):  # until the interpreter has specialised their instructions
        main()
    loops(HOT)
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
