"""Run by native/embed.c: samples in recursion, in a generator and in a callback of C; then the next interpreter, if
any, on the same stack."""

import json
import os
import sys

import snap

snap.outer = json.loads(os.environ.get("UU_TEST_OUTER", "[]"))


def rec(n):
    if n == 0:
        snap.snap()
        snap.snap_released()
        return
    rec(n - 1)


def generator():
    rec(2)
    yield 1


def here(frame):
    """Frames from this one on, and those around them; in the first one, the instruction is not known."""
    frames = snap.frames_from(frame)
    frames[0][1] = None
    return json.dumps(frames + snap.outer)


def callback(_):
    snap.held.inner(here(sys._getframe(0)))
    rec(1)
    return 0


sum(generator())
sorted([1], key=callback)
