"""libuunwind.so.0 by ctypes: its structures and functions, as uu.h declares them.

Each function exists twice: called with the interpreter's lock held, where a call is short and must not let other
threads in between, and without it, where a call opens files or waits for others.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int32, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from uunwind import TREE
from uunwind._errors import LibraryError

NAME = "libuunwind.so.0"
VARIABLE = "UUNWIND_LIBRARY"
ABI = 1

NATIVE, SEMANTIC, WINDOW, OMITTED = 1, 2, 3, 4
INTERPRETER = 1 << 62
INFO_EXACT, INFO_INTERPRETER = 1, 4
SYMBOL_INLINED = 1
DOUBT_SETUP_DUE = 2
CRASH_JSON, CRASH_FIRST, CRASH_ONE_THREAD = 1, 2, 4
COMPLETE = (1, 2, 4)

#: Why a walk ended, by the numbers of `enum uu_stop`; docs/stop-reasons.md says more of each.
STOPS = {
    1: "complete",
    2: "start symbol",
    3: "frame pointer end",
    4: "switched stack",
    5: "doubtful",
    10: "too many frames",
    11: "buffer full",
    12: "ended by callback",
    20: "no owner",
    21: "no rule",
    22: "bad unwind info",
    23: "unsupported rule",
    24: "unknown register",
    25: "bad cfa",
    26: "null return address",
    27: "opaque window",
    28: "plugin lost",
    29: "not code",
    30: "stack in transit",
    31: "object missing",
    50: "unreadable stack",
    51: "unreadable unwind info",
    52: "word left out",
    53: "stack cut",
    60: "fault",
    61: "watchdog",
    62: "plugin nonsense",
    63: "too many threads",
    64: "signal blocked",
    65: "thread asleep",
    66: "no answer",
    67: "unaligned argument",
}


class Request(ctypes.Structure):
    """`struct uu_request`."""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("ucontext", c_void_p),
        ("frames", POINTER(c_uint64)),
        ("capacity", c_size_t),
        ("skip", c_uint32),
        ("reserved", c_uint32),
        ("frame", c_void_p),
        ("user", c_void_p),
        ("words", c_size_t),
        ("count", c_uint32),
        ("stop", c_uint16),
        ("doubt", c_uint16),
        ("cfas", c_void_p),
    ]


class ThreadOf(ctypes.Structure):
    """`struct uu_thread`."""

    _fields_ = [
        ("tid", c_uint32),
        ("error", c_int32),
        ("name", c_char * 16),
        ("first", c_size_t),
        ("words", c_size_t),
        ("count", c_uint32),
        ("stop", c_uint16),
        ("doubt", c_uint16),
    ]


class FrameInfo(ctypes.Structure):
    """`struct uu_frame_info`."""

    _fields_ = [
        ("size", c_uint32),
        ("kind", c_uint32),
        ("flags", c_uint32),
        ("line", c_uint32),
        ("first_line", c_uint32),
        ("omitted", c_uint32),
        ("address", c_uint64),
        ("file_address", c_uint64),
        ("file_offset", c_uint64),
        ("position", c_uint64),
        ("build_id_len", c_uint32),
        ("reserved", c_uint32),
        ("build_id", ctypes.c_uint8 * 32),
        ("language", c_char * 16),
        ("function", c_char * 512),
        ("file", c_char * 1024),
    ]


class Symbol(ctypes.Structure):
    """`struct uu_symbol`."""


Symbol._fields_ = [
    ("next", POINTER(Symbol)),
    ("function", c_char_p),
    ("file", c_char_p),
    ("object", c_char_p),
    ("language", c_char_p),
    ("problem", c_char_p),
    ("address", c_uint64),
    ("start", c_uint64),
    ("line", c_uint32),
    ("frame", c_uint32),
    ("kind", c_uint32),
    ("flags", c_uint32),
]

# Functions that are called with the interpreter's lock held, and without it.
SHORT = {
    "uu_walk": (c_int, [POINTER(Request)]),
    "uu_describe": (c_int, [POINTER(c_uint64), POINTER(FrameInfo)]),
    "uu_label_set": (c_int, [c_char_p, c_char_p]),
    "uu_record_start": (c_int, []),
    "uu_record_stop": (c_int, []),
    "uu_prepare_thread": (c_int, []),
    "uu_report_crashes": (c_int, [c_int, c_uint32]),
    "uu_report_crashes_to": (c_int, [c_char_p, c_uint32]),
}
LONG = {
    "uu_setup": (c_int, []),
    "uu_symbolize": (c_int, [POINTER(c_uint64), c_size_t, POINTER(POINTER(Symbol))]),
    "uu_symbols_free": (None, [POINTER(Symbol)]),
    "uu_walk_all": (c_int, [POINTER(Request), POINTER(ThreadOf), c_size_t, c_uint64]),
}


class Library:
    """The functions of the process's libuunwind."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            held, free = ctypes.PyDLL(path), ctypes.CDLL(path)
        except OSError as error:
            raise LibraryError(
                "%s cannot be opened: %s. Install uunwind anew, or set %s to the path of a %s"
                % (path, error, VARIABLE, NAME)
            ) from None
        for library, functions in ((held, {"uu_abi": (c_uint32, [])}), (held, SHORT), (free, LONG)):
            for name, (result, arguments) in functions.items():
                try:
                    function = getattr(library, name)
                except AttributeError:
                    raise LibraryError(
                        "%s is older than this package: it has no %s. Install both from one package" % (path, name)
                    ) from None
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)
                if name == "uu_abi" and function() != ABI:
                    raise LibraryError(
                        "%s is of another version: it has interface %d, and this package needs %d. "
                        "Install both from one package" % (path, function(), ABI)
                    )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def setup(self) -> None:
        """Lets walks show frames of interpreters: `uu_setup()`, which looks at what was loaded since the last call."""
        done = self.uu_setup()
        if done < 0:
            raise LibraryError(
                "stacks cannot be set up: %s. uu/libuunwind-setup.so belongs beside %s, and to the same build"
                % (os.strerror(-done), self.path)
            )


_found: Library | None = None


def library() -> Library:
    """The library, which the first call opens."""
    global _found
    if _found is None:
        # Two threads may both do this, and find the same.
        _found = Library(_path())
    return _found


def _path() -> str:
    machine = os.uname().machine if hasattr(os, "uname") else "this"
    if not sys.platform.startswith("linux") or machine not in ("x86_64", "aarch64") or sys.maxsize < 1 << 32:
        raise LibraryError("uunwind works on Linux of 64 bits, on x86-64 and AArch64; this is %s on %s"
                           % (sys.platform, machine))
    try:
        # Under `uu record`, or linked by an extension module: a process needs one only.
        ctypes.CDLL(NAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return NAME
    except OSError:
        pass
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return chosen
    own = os.path.join(TREE, "lib", NAME)
    if os.path.exists(own):
        return own
    try:
        ctypes.CDLL(NAME)
        return NAME
    except OSError:
        raise LibraryError(
            "there is no %s: not %s, which is part of this package, and none of the system's. "
            "Install uunwind anew, or set %s to its path" % (NAME, own, VARIABLE)
        ) from None


__all__ = ["byref", "library", "Library", "Request", "ThreadOf", "FrameInfo", "Symbol", "POINTER", "c_uint64"]
