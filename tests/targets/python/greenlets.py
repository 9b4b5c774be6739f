"""Greenlets that are started at different depths of the C stack and switch while they are deep in calls, so that each
one's stack memory is another one's soon. Usage: greenlets.py SECONDS"""
import sys
import time

import greenlet


def work():
    return sum(range(2000))


def inner(depth):
    if depth:
        return inner(depth - 1)
    for _ in range(20):
        work()
        greenlet.getcurrent().parent.switch()


def in_greenlet():
    inner(5)


def start(one, depth):
    """Starts it from below `depth` calls of C code."""
    if depth:
        return sorted([0], key=lambda _: start(one, depth - 1) or 0)
    return one.switch() and None


end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    running = [greenlet.greenlet(in_greenlet) for _ in range(16)]
    for depth, one in enumerate(running):
        start(one, depth)
    while running:
        for one in running:
            one.switch()
        running = [one for one in running if not one.dead]
