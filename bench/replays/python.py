"""Samples itself N times with DEPTH Python functions below the sampled one: the `same` stack each time, or one that
`changes`.

  python.py N DEPTH same|changes

Prints the CPU time used, in ms."""

import resource
import signal
import sys

count, depth, way = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
signal.signal(signal.SIGPROF, signal.SIG_IGN)


def repeated(left):
    if left:
        return repeated(left - 1)
    for _ in range(count):
        signal.raise_signal(signal.SIGPROF)


def even(left):
    return odd(left - 1) if left > 0 else signal.raise_signal(signal.SIGPROF)


def odd(left):
    return (even if left % 3 else odd)(left - 1) if left > 0 else signal.raise_signal(signal.SIGPROF)


if way == "same":
    repeated(depth)
else:
    for number in range(count):
        (even if number & 1 else odd)(depth - number % 7)
used = resource.getrusage(resource.RUSAGE_SELF)
print(round((used.ru_utime + used.ru_stime) * 1000))
