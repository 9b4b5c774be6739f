"""The command `uu` beside this process: where it is, and the right to look into this process."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from typing import Dict

import uunwind
from uunwind._errors import Error

_PR_SET_PTRACER = 0x59616D61
_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


def command() -> str:
    """The path of `uu`."""
    if not sys.platform.startswith("linux"):
        raise Error("uu runs on Linux only; this is %s" % sys.platform)
    own = os.path.join(uunwind.TREE, "bin", "uu")
    if os.access(own, os.X_OK):
        return own
    found = shutil.which("uu")
    if found:
        return found
    what = "may not be executed" if os.path.exists(own) else "is not there"
    raise Error(
        "uu was not found: %s, which is part of this package, %s, and no folder of PATH has one. "
        "Install uunwind anew, by pip" % (own, what)
    )


def environment() -> Dict[str, str]:
    """The environment of this process, without what is loaded into it."""
    left_out = ("LD_PRELOAD", "LD_AUDIT", "UU_SESSION")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def allow_children() -> None:
    """Lets processes that this one starts trace it, where Yama leaves that to the traced one."""
    try:
        with open(_SCOPE) as file:
            restricted = file.read().strip() == "1"
    except OSError:
        return
    if restricted:
        # The process itself as its tracer: those that descend from it may do what it may.
        ctypes.PyDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getpid()), 0, 0, 0)
