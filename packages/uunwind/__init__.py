"""uu from inside a Python program: mixed stacks of Python and native code, crash reports, recordings, labels.

    import uunwind

    print(uunwind.stack())                      # who called this, in every language
    uunwind.report_crashes()                    # as faulthandler.enable(), with native frames
    with uunwind.record("profile.html"):        # a profile of this part of the program
        work()
    with uunwind.label(request="42"):           # its samples have this label
        work()
    with uunwind.watchdog(10):                  # if it takes longer: what all threads are doing
        work()

Nothing is loaded until one of these is called. The package has the command `uu`, too, and the library libuunwind that
all of it is made of; docs/python.md describes each function.
"""

from __future__ import annotations

import os

# As that of typing, which the command `uu` need not load.
TYPE_CHECKING = False

#: The folder with bin/uu, lib/libuunwind.so.0 and include/uu.h.
TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree")

if TYPE_CHECKING:
    from typing import Any

    from uunwind._crash import report_crashes as report_crashes
    from uunwind._errors import Error as Error
    from uunwind._errors import LabelWarning as LabelWarning
    from uunwind._errors import LibraryError as LibraryError
    from uunwind._errors import RecordError as RecordError
    from uunwind._label import label as label
    from uunwind._record import record as record
    from uunwind._stack import Frame as Frame
    from uunwind._stack import Stack as Stack
    from uunwind._stack import stack as stack
    from uunwind._threads import Thread as Thread
    from uunwind._threads import dump_threads as dump_threads
    from uunwind._threads import threads as threads
    from uunwind._watchdog import watchdog as watchdog

# Where each name is: the command `uu` imports this package at each start, and needs none of them.
_PLACES = {
    "Error": "_errors",
    "Frame": "_stack",
    "LabelWarning": "_errors",
    "LibraryError": "_errors",
    "RecordError": "_errors",
    "Stack": "_stack",
    "Thread": "_threads",
    "dump_threads": "_threads",
    "label": "_label",
    "record": "_record",
    "report_crashes": "_crash",
    "stack": "_stack",
    "threads": "_threads",
    "watchdog": "_watchdog",
}

__all__ = ["TREE"] + sorted(_PLACES)  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    import importlib

    found = getattr(importlib.import_module("uunwind." + place), name)
    globals()[name] = found
    return found


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext uunwind`: the magics %uu and %%uu."""
    from uunwind._ipython import load

    load(shell)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_PLACES))
