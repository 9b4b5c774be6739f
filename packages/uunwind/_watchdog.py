"""A watchdog: where a part of the program takes too long, the stacks of all threads are printed, from outside, so that
it works whatever the program hangs in, the interpreter's lock included."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any

from uunwind import _command
from uunwind._errors import Error


class watchdog:
    """Prints what all threads are doing if the block takes more than `seconds`, or feed() is not called for that time.

        with uunwind.watchdog(10): ...

        dog = uunwind.watchdog(60).start()
        while serving():
            dog.feed()

    It is `uu dump -p` of this process, in a process beside it: Python's functions and native ones, and which thread
    holds what others wait for.

    repeat: again each `seconds`, until it ends; otherwise once, until it is fed again.
    exit: then end the process, by SIGABRT; by SIGKILL if it is there 10 s later.
    file: a file object or descriptor; standard error if it is not given.
    """

    def __init__(self, seconds: float, *, repeat: bool = False, exit: bool = False, file: Any = None) -> None:
        if not seconds > 0:
            raise ValueError("watchdog(%r): give a time above 0, in seconds" % (seconds,))
        self._seconds, self._repeat, self._exit, self._file = seconds, repeat, exit, file
        self._lock = threading.Lock()
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> watchdog:
        """Begins to watch."""
        with self._lock:
            if self._process is not None and self._owner == os.getpid():
                raise Error("this watchdog watches already: stop() it first")
            uu = _command.command()
            _command.allow_children()
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_watch.py")
            words = [_python(), "-I", "-S", script, uu, str(os.getpid()), repr(self._seconds),
                     str(int(self._repeat)), str(int(self._exit))]
            output = _descriptor(self._file)
            try:
                self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=output, stderr=output,
                                                 env=_command.environment(), start_new_session=True, bufsize=0)
            except OSError as error:
                raise Error("the watchdog cannot be started: %s: %s" % (words[0], error)) from None
            self._owner = os.getpid()
        return self

    def feed(self) -> None:
        """Says that the program goes on: the time begins anew."""
        self._say(b"f")

    def stop(self) -> None:
        """Ends it. Does nothing if it has ended, or was started by the parent of this process."""
        self._say(b"q")
        with self._lock:
            if self._owner != os.getpid() or self._process is None:
                return
            process, self._process = self._process, None
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()

    def __enter__(self) -> watchdog:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _say(self, what: bytes) -> None:
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                return
            try:
                self._process.stdin.write(what)  # type: ignore[union-attr]
            except OSError:
                # It has done its work, and ended.
                pass


def _python() -> str:
    """An interpreter: in a program that contains Python, `sys.executable` is that program."""
    own = sys.executable or ""
    if os.path.basename(own).startswith("python") and os.access(own, os.X_OK):
        return own
    for name in ("python%d.%d" % sys.version_info[:2], "python3"):
        path = os.path.join(sys.base_prefix, "bin", name)
        if os.access(path, os.X_OK):
            return path
    return own or "python3"


def _descriptor(file: Any) -> int:
    if isinstance(file, int):
        return file
    try:
        file = sys.stderr if file is None else file
        file.flush()
        return int(file.fileno())
    except (AttributeError, OSError, ValueError):
        if file is sys.stderr or file is None:
            return 2
        raise


__all__ = ["watchdog"]
