"""Greenlets: samples where one works, where another one was started below a callback of C, and after switching back; in
gevent, below its hub; the same with the GIL released. The interpreter's own view of a greenlet ends where that begins.

Usage: in_greenlets.py [gevent]"""

import sys

import greenlet

from snap import snap, snap_released


def rec(n):
    if n:
        return rec(n - 1)
    snap()
    snap_released()


def first():
    rec(3)
    sorted([1], key=lambda _: second_one.switch() or 0)
    rec(1)
    second_one.switch()
    list(generator())


def generator():
    rec(2)
    yield third_one.switch()


def second():
    rec(2)
    first_one.switch()
    rec(4)
    second_one.parent.switch()


def third():
    snap()
    greenlet.getcurrent().parent.switch()


if len(sys.argv) > 1:
    import gevent
    import gevent.event

    ready = gevent.event.Event()

    def waits():
        ready.wait()
        rec(2)

    def sets():
        rec(1)
        gevent.sleep(0)
        ready.set()
        snap()

    gevent.joinall([gevent.spawn(waits), gevent.spawn(sets)], raise_error=True)
else:
    first_one, second_one, third_one = map(greenlet.greenlet, (first, second, third))
    while not first_one.dead:
        first_one.switch()
