"""Makes large objects for each line of its input, twenty of each size, and says the sizes; with numpy, arrays, too."""

import sys

try:
    import numpy
except ImportError:
    numpy = None

ROUNDS = 20
kept = []


def makes_bytes():
    for _ in range(ROUNDS):
        kept.append(bytes(70001))


def makes_arrays():
    for _ in range(ROUNDS):
        kept.append(numpy.empty(90001, dtype=numpy.uint8))


print("ready", flush=True)
for line in sys.stdin:
    if line == "end\n":
        break
    makes_bytes()
    if numpy:
        makes_arrays()
    kept.clear()
    print("70001 90001" if numpy else "70001", flush=True)
