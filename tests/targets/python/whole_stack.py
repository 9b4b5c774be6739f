"""The interpreter's own word on a stack, beside what uu_walk() and uu_describe() say of it, in a program without a
recorder. The library's path is the first argument, that of the storm's object the second."""

import ctypes
import sys
import threading
import traceback

from uu_structures import Info, NATIVE, NO_INTERPRETER, Request, SEMANTIC, WINDOW, pointer, size_t, u16, u64

uu = ctypes.CDLL(sys.argv[1])
storm = ctypes.CDLL(sys.argv[2])
uu.uu_stack_frames.restype = size_t
words = (u64 * 20000)()
seen = 0


def describe(frames, count):
    """(kind, language, function, file, line) of each frame."""
    at, found = 0, []
    while at < count:
        info = Info(size=ctypes.sizeof(Info))
        taken = uu.uu_describe(ctypes.byref(frames, 8 * at), ctypes.byref(info))
        assert taken in (1, 2), taken
        found.append((info.kind, info.language.decode(), info.function.decode(), info.file.decode(), info.line))
        at += taken
    return found


def walk(flags=0, skip=0, capacity=20000):
    request = Request(size=ctypes.sizeof(Request), flags=flags, frames=ctypes.addressof(words), capacity=capacity,
                      skip=skip)
    assert uu.uu_walk(ctypes.byref(request)) == 0
    return request


# One line, so that both calls have the same one.
def check(): global seen; seen += 1; compare(walk(), traceback.extract_stack())


def compare(request, oracle):
    assert request.stop == 1 and request.doubt == 0, (request.stop, request.doubt)
    frames = describe(words, request.words)
    assert len(frames) == request.count
    mine = [(function, file, line) for kind, language, function, file, line in frames if kind == SEMANTIC_KIND]
    assert all(language == "python" for kind, language, *_ in frames if kind == SEMANTIC_KIND)
    theirs = [(frame.name, frame.filename, frame.lineno) for frame in reversed(oracle)]
    # `walk` is gone when the oracle asks.
    assert mine[0][0] == "walk", mine[0]
    assert [(name.split(".")[-1], file, line) for name, file, line in mine[1:]] == theirs, (mine, theirs)
    native = [file for kind, _, _, file, _ in frames if kind == 1]
    assert any("libffi" in file for file in native) and any("python" in file for file in native), native


SEMANTIC_KIND = 2


def recursion(n):
    if n:
        return recursion(n - 1)
    check()


def generator():
    check()
    yield 1
    check()


class Thing:
    def __lt__(self, other):
        check()
        return False

    def method(self):
        return sorted([Thing(), Thing()])


def with_größe():
    exec(compile("check()", "<made of text>", "exec"), globals())


def everything():
    check()
    recursion(50)
    list(generator())
    Thing().method()
    with_größe()
    (lambda: check())()
    [check() for _ in range(2)]


assert uu.uu_setup() > 3
everything()
for _ in range(3):
    recursion(7)
thread = threading.Thread(target=everything)
thread.start()
thread.join()

# What is wanted, and only that.
whole = walk().count
semantic = walk(SEMANTIC)
assert {kind for kind, *_ in describe(words, semantic.words)} == {SEMANTIC_KIND}
native = walk(NATIVE)
assert {kind for kind, *_ in describe(words, native.words)} == {1}
assert semantic.count + native.count == whole
without = walk(NO_INTERPRETER)
assert without.count < whole
assert walk(skip=2).count == whole - 2
cut = walk(capacity=5)
assert cut.stop == 11 and 3 <= cut.words <= 5, (cut.stop, cut.words)
before = describe(words, cut.words)
walk()
assert describe(words, cut.words) == before


# A storm of signals, whose handler walks and gives each stack an id; each is then held against the calls that exist.
CALLS = {"run": {"left", "right", "spin"}, "left": {"right", "spin"}, "right": {"left", "spin", "<genexpr>"},
         "<genexpr>": {"spin"}, "spin": set()}


def spin():
    total = 0
    for i in range(50):
        total += i * i
    return total


def left(n):
    return spin() + (right(n - 1) if n else 0)


def right(n):
    return sum(spin() for _ in range(2)) + (left(n - 1) if n else 0)


def run(seconds):
    while not storm.storm_is_over(ctypes.c_double(seconds)):
        for n in range(20):
            left(n)
            right(n)
            spin()


def storms(seconds):
    assert storm.storm_begin(pointer(uu._handle)) == 0
    threads = [threading.Thread(target=run, args=(seconds,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    run(seconds)
    for thread in threads:
        thread.join()
    storm.storm_end()
    storm.storm_take.restype = size_t
    stacks = good = with_calls = in_threading = 0
    stop, doubt, times = u16(), u16(), u64()
    while count := storm.storm_take(words, len(words), ctypes.byref(stop), ctypes.byref(doubt), ctypes.byref(times)):
        frames = describe(words, count)
        stacks += times.value
        if stop.value == 1 and doubt.value == 0:
            good += times.value
            python = [(function.split(".")[-1], file) for kind, _, function, file, _ in frames if kind == SEMANTIC_KIND]
            names = [name for name, file in python if file == __file__ and name in CALLS]
            # A thread that starts another one, waits for it, or is started.
            in_threading += times.value if not names and any(file == threading.__file__ for _, file in python) else 0
            if names:
                with_calls += times.value
                assert names[-1] == "run", (names, frames)
                for callee, caller in zip(names, names[1:]):
                    assert callee in CALLS[caller], (names, frames)
    print(f"{stacks} stacks, {good} complete, {with_calls} with the program's functions, {in_threading} in threading")
    assert stacks > 500 and good >= stacks * 0.99
    assert with_calls > 100 and with_calls + in_threading > good * 0.9


storms(0.4)
assert uu.uu_handle_faults() == 0
everything()
storms(0.4)
assert seen == 30, seen
print("ok")
