"""Greenlets that switch, captured at each instruction by a program that has prepared nothing: no rule tables are here.
Usage: switches.py HELPER, the object made of switches.c"""
import ctypes
import subprocess
import sys

import greenlet

helper = ctypes.CDLL(sys.argv[1])
helper.begin.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
module = greenlet._greenlet.__file__
# Where the function that runs greenlets is, and its length.
NAME = "_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object"
symbols = subprocess.run(["nm", "-DS", module], capture_output=True, text=True, check=True).stdout
size = next(int(line.split()[1], 16) for line in symbols.splitlines() if line.endswith(" T " + NAME))
address = ctypes.cast(getattr(ctypes.CDLL(module), NAME), ctypes.c_void_p).value


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
