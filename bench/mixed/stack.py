"""A stack of Python, Lua and C, and what walks of it cost: mixed.c, which this file loads, measures. Prints lines
`round what frames ticks`; bench/mixed.py makes a table of them.

  stack.py MODULE LIBRARY ROUNDS DEPTH...     DEPTH: number of Python functions, and of Lua functions"""

import ctypes
import sys

module = ctypes.PyDLL(sys.argv[1])
ROUNDS, DEPTHS = int(sys.argv[3]), [int(depth) for depth in sys.argv[4:]]


def even(left, *arguments):
    return odd(left - 1, *arguments) if left else module.measure(*arguments)


def odd(left, *arguments):
    return even(left - 1, *arguments) if left else module.measure(*arguments)


if module.begin(sys.argv[2].encode()):
    sys.exit("the library refused")
for number in range(ROUNDS + 1):
    for depth in DEPTHS:
        # The first round meets everything for the first time.
        even(depth - 1, depth, number)
