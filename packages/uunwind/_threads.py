"""The stacks of all threads of this process."""

from __future__ import annotations

import errno
import os
import sys
import threading
from ctypes import byref
from typing import NamedTuple, TextIO

from uunwind import _library, _stack
from uunwind._errors import LibraryError
from uunwind._library import ThreadOf, library
from uunwind._stack import Stack, Walk

#: Words of all stacks together; one for which there is no room says so.
CAPACITY = 1 << 18
#: Threads that are asked, at most.
THREADS = 4096
#: Nanoseconds in which all threads together have to answer.
PATIENCE = 5 * 10**9


class Thread(NamedTuple):
    """A thread of this process, and its stack."""

    #: The kernel's thread id, as `threading.get_native_id()` returns it.
    id: int
    #: The name that Python has for it, or else the kernel's.
    name: str
    #: Whether it is the one that asked.
    current: bool
    #: Its frames; empty where it did not answer, and `stack.reason` says why.
    stack: Stack

    def __str__(self) -> str:
        mark = "Current thread" if self.current else "Thread"
        return "%s %d [%s] (most recent call first):\n%s" % (mark, self.id, self.name, self.stack)


def threads(*, native: str = "hide") -> list[Thread]:
    """All threads of this process with their stacks, the calling one first.

    Threads that run native code are interrupted by a real-time signal for it, whoever holds the interpreter's lock.
    Stacks are not all of one moment. native: as for stack().
    """
    _stack._check(native)
    of = library()
    _stack.set_up()
    room = THREADS
    found = (ThreadOf * room)()
    for attempt in (0, 1):
        asked, words = _stack.request(CAPACITY)
        count = of.uu_walk_all(byref(asked), found, room, PATIENCE)
        if count < 0:
            raise LibraryError("threads cannot be walked: %s" % os.strerror(-count))
        if attempt or not asked.doubt & _library.DOUBT_SETUP_DUE:
            break
        of.setup()
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    present = [thread for thread in found[: min(count, room)] if thread.error != -errno.ESRCH]
    walks = []
    for index, thread in enumerate(present):
        walk = Walk(words[thread.first : thread.first + thread.words], thread.stop, thread.doubt)
        walks.append(walk if index else _stack.without_own(walk))
    stacks = _stack.made_all(walks, native)
    own = threading.get_native_id()
    return [
        Thread(thread.tid, names.get(thread.tid) or thread.name.decode("utf-8", "replace"), thread.tid == own, stack)
        for thread, stack in zip(present, stacks)
    ]


def dump_threads(file: TextIO | None = None, *, native: str = "hide") -> None:
    """Prints the stacks of all threads to `file`, or to standard error: as faulthandler.dump_traceback(), with native
    frames."""
    text = "\n\n".join(map(str, threads(native=native))) + "\n"
    print(text, file=file or sys.stderr, end="", flush=True)


__all__ = ["Thread", "dump_threads", "threads"]
