"""A stack of Python functions, and what samples of it cost: frames.c, which this file loads, measures. Prints lines
`round what depth ticks`; bench/python.py makes a table of them.

  frames.py MODULE ROUNDS DEPTH..."""

import ctypes
import sys

sys.setrecursionlimit(10000)
module = ctypes.PyDLL(sys.argv[1])
ROUNDS, DEPTHS = int(sys.argv[2]), [int(depth) for depth in sys.argv[3:]]

# Many functions, as a program has: their code objects and lines are looked up again and again.
names = {}
for index in range(40):
    source = (
        "def f%d(left, depth, number):\n%s    return f%d(left - 1, depth, number) if left else measure(depth, number)\n"
    )
    exec(compile(source % (index, "    left += 0\n" * (index % 7), (index + 1) % 40), "functions.py", "exec"), names)
names["measure"] = module.measure

for number in range(ROUNDS + 1):
    for depth in DEPTHS:
        # The first round meets everything for the first time.
        names["f0"](depth - 1, depth, number)
