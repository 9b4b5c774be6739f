"""Crash reports: what faulthandler prints, with native frames of all threads."""

from __future__ import annotations

import os
import sys
from typing import Any

from uunwind import _library, _stack
from uunwind._errors import Error
from uunwind._library import library

_STDERR = object()
# The file that is written to: it must stay open.
_kept: Any = None


def report_crashes(file: Any = _STDERR, *, all_threads: bool = True, json: bool = False, first: bool | None = None
                   ) -> None:
    """From now on, a crash of this process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS) is reported:
    the signal, registers, and the stacks of all threads, Python's functions and native ones. Then the process ends as
    it would have.

    file: where to; a file object, a descriptor, or a path, in which each %p becomes the process id and which is made
    when a crash comes. It must stay open. None: no reports any more.
    all_threads: otherwise only the thread that crashed.
    json: JSON lines instead of text (docs/json.md).
    first: report before handlers of the program's run. If it is not given: where faulthandler is enabled, which would
    end the process without a report.
    """
    global _kept
    of = library()
    if file is None:
        _done(of.uu_report_crashes(-1, 0), "no file")
        _kept = None
        return
    _stack.set_up()
    if first is None:
        import faulthandler

        first = faulthandler.is_enabled()
    flags = (
        (_library.CRASH_JSON if json else 0)
        | (_library.CRASH_FIRST if first else 0)
        | (0 if all_threads else _library.CRASH_ONE_THREAD)
    )
    if isinstance(file, (str, bytes, os.PathLike)):
        _done(of.uu_report_crashes_to(os.fsencode(file), flags), repr(file))
    else:
        _done(of.uu_report_crashes(_descriptor(file), flags), repr(file))
    _kept = file


def _descriptor(file: Any) -> int:
    if isinstance(file, int):
        return file
    if file is _STDERR:
        file = sys.stderr
        try:
            file.flush()
            return int(file.fileno())
        except (AttributeError, OSError, ValueError):
            # Replaced by an object in memory, or none: what the process was started with.
            return 2
    file.flush()
    return int(file.fileno())


def _done(result: int, what: str) -> None:
    if result < 0:
        raise Error("crashes cannot be reported to %s: %s" % (what, os.strerror(-result)))


__all__ = ["report_crashes"]
