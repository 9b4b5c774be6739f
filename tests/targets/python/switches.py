"""Greenlets that switch, captured at each instruction by a program that has prepared nothing: no rule tables are here.
Usage: switches.py HELPER, the object made of switches.c"""
import ctypes
import subprocess
import sys

import greenlet

helper = ctypes.CDLL(sys.argv[1])
helper.begin.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
module = greenlet._greenlet.__file__
# Where the function that runs greenlets is, and its length: of greenlet 2 and later, and of greenlet 1.
NAMES = ("_ZN8greenlet12UserGreenlet15inner_bootstrap", "g_initialstub")
EXPORTED = "PyInit__greenlet"
lines = subprocess.run(["nm", "-S", module], capture_output=True, text=True, check=True).stdout.splitlines()
symbols = [line.split() for line in lines if len(line.split()) == 4]
found = next(words for words in symbols if words[3].startswith(NAMES) and not words[3].endswith(".cold"))
exported = next(words for words in symbols if words[3] == EXPORTED)
bias = ctypes.cast(getattr(ctypes.CDLL(module), EXPORTED), ctypes.c_void_p).value - int(exported[0], 16)
address, size = bias + int(found[0], 16), int(found[1], 16)


def inner(depth):
    if depth:
        return inner(depth - 1)
    for _ in range(3):
        greenlet.getcurrent().parent.switch()


def start(one, depth):
    """Starts it from below `depth` calls of C code."""
    if depth:
        return sorted([0], key=lambda _: start(one, depth - 1) or 0)
    return one.switch() and None


def switch_all():
    running = [greenlet.greenlet(lambda: inner(2)) for _ in range(3)]
    for depth, one in enumerate(running):
        start(one, depth)
    while running:
        for one in running:
            one.switch()
        running = [one for one in running if not one.dead]


# What is done once is done.
switch_all()
helper.begin(address, size)
switch_all()
helper.end()
