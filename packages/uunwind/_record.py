"""Recordings of a part of this process, made by `uu record -p` beside it."""

from __future__ import annotations

import atexit
import errno
import functools
import inspect
import itertools
import mmap
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time
from typing import IO, Any, Callable, Mapping, Sequence, TypeVar, Union

from uunwind import _command
from uunwind._errors import LibraryError, RecordError
from uunwind._label import label
from uunwind._library import library

Called = TypeVar("Called", bound=Callable[..., Any])
Path = Union[str, "os.PathLike[str]"]

#: How long `uu` may take to begin. Only a machine that has no time for it reaches that.
PATIENCE = 600.0
#: How long its timer is waited for.
ARMED = 5.0

_lock = threading.Lock()
# The recording of this process that goes on.
_active: record | None = None


class record:
    """Records this process while a block, or a decorated function, runs.

        with uunwind.record("profile.html"): ...

    path: where the result goes; its extension says what it is: .uu (a recording, of which the others are made), .html,
    .svg, .pb.gz (pprof), .speedscope.json and others (`uu record --help`). %p becomes the process id, %n the first
    number from 1 on with which there is no such file. Without a path: under `uu record --start-paused -- python3 ...`
    the block is a part of that recording; otherwise the result is uu-PROGRAM-PID.uu.
    rate: samples a second of CPU time, of each thread, 1 to 1,000.
    mode: "cpu", or "wall": threads that wait, too.
    format: of the result, if its extension does not say it.
    native: "hide", "leaf" or "show": which of the interpreter's own functions results have.
    gil: results have only samples of threads that held the interpreter's lock.
    children: record child processes, too.
    keep: with another format, keep the recording (.uu) beside it.
    labels: all samples have these, whatever thread they are of. Without a path, where the block is a part of a
    recording, they are those of the calling thread, as `label` has them.
    options: further options of `uu record -p`.

    All threads are recorded. A block in which no thread used CPU time leaves no file, and `summary` says so. To
    begin takes about a tenth of a second, to end as long as naming the functions takes.
    """

    #: What `uu` said at the end: the summary of the profile.
    summary = ""
    #: Where the result goes, or the last one went; None: `uu` has chosen a name.
    path: str | None

    def __init__(
        self,
        path: Path | None = None,
        *,
        rate: int = 99,
        mode: str = "cpu",
        format: str | None = None,
        native: str = "hide",
        gil: bool = False,
        children: bool = False,
        keep: bool = True,
        labels: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        if mode not in ("cpu", "wall"):
            raise ValueError("mode=%r: give 'cpu' or 'wall'; the others need `uu record --mode %s`" % (mode, mode))
        if native not in ("hide", "leaf", "show"):
            raise ValueError("native=%r: give 'hide', 'leaf' or 'show'" % (native,))
        self._pattern = self.path = None if path is None else os.fspath(path)
        words = ["--rate", str(rate), "--mode", mode, "--native-frames", native]
        words += ["--format", format] if format else []
        words += ["--gil"] if gil else []
        words += ["--subprocesses"] if children else []
        # A recording that is the result itself is kept anyhow.
        is_recording = self.path is None or format == "uu" or not format and self.path.endswith(".uu")
        words += [] if keep or is_recording else ["--no-keep"]
        self._labels = {str(key): str(value) for key, value in (labels or {}).items() if value is not None}
        for key, value in self._labels.items():
            if "=" in key or "\0" in key + value:
                raise ValueError("labels={%r: %r}: a key has no =, and neither has a NUL" % (key, value))
            words += ["--label", "%s=%s" % (key, value)]
        self._words = words + list(options)
        self._label: label | None = None
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def start(self) -> record:
        """Begins; the process is being recorded when it returns."""
        global _active
        with _lock:
            if _active is not None and _active._owner == os.getpid():
                raise RecordError("this process is being recorded already, to %s: end that recording first"
                                  % (_active.path or "a file named after it"))
            self.path = _chosen(self._pattern)
            if self.path is None and _is_recorded():
                _section(library().uu_record_start())
                self._label = label(self._labels).__enter__() if self._labels else None
            else:
                self._begin()
            _active, self._owner = self, os.getpid()
        atexit.register(self._at_exit)
        return self

    def stop(self) -> None:
        """Ends, and waits until the result is written."""
        global _active
        if self._owner != os.getpid():
            # Not begun, or begun by the parent of this process.
            return
        atexit.unregister(self._at_exit)
        self._owner = 0
        with _lock:
            if _active is self:
                _active = None
        if self._process is None:
            if self._label is not None:
                self._label.__exit__()
            _section(library().uu_record_stop())
            return
        process, self._process = self._process, None
        # Not SIGINT: what a shell starts in the background ignores it, and so does what that starts.
        process.send_signal(signal.SIGTERM)
        code = process.wait()
        self.summary = self._text()
        if code:
            raise RecordError("the recording has failed: %s" % _reason(self.summary, code))

    def __enter__(self) -> record:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __call__(self, function: Called) -> Called:
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError("record() cannot decorate a generator function: use `with uunwind.record(...)` inside it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                if self._owner == os.getpid():
                    return await function(*args, **kwargs)
                with self:
                    return await function(*args, **kwargs)

            return coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._owner == os.getpid():
                # It calls itself, or is called by another thread meanwhile: it is being recorded.
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    def _begin(self) -> None:
        uu = _command.command()
        _command.allow_children()
        self._said = tempfile.TemporaryFile()
        words = [uu, "record", "--pid", str(os.getpid()), "--start-paused"] + self._words
        words += [] if self.path is None else ["--output", self.path]
        environment = _command.environment()
        try:
            # A group of its own: Ctrl-C is for the program, and ends the recording when that ends.
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said,
                                       env=environment, start_new_session=True)
        except OSError as error:
            raise RecordError("%s cannot be run: %s" % (uu, error)) from None
        try:
            # Paused until now: the recording begins here, and has nothing of how it was prepared. No process is started
            # meanwhile: a thread that does so blocks all signals, and could not be sampled.
            end = time.monotonic() + PATIENCE
            while not _resume(process.pid):
                if process.poll() is not None:
                    text = self._text()
                    raise RecordError("this process cannot be recorded: %s" % _reason(text, process.returncode))
                if time.monotonic() > end:
                    raise RecordError("uu (process %d) has not begun to record within %d s" % (process.pid, PATIENCE))
                time.sleep(0.005)
            _wait_for_timer()
        except BaseException:
            if process.poll() is None:
                process.terminate()
                process.wait()
            raise
        self._process = process

    def _text(self) -> str:
        if self._said is None:
            return ""
        with self._said as said:
            said.seek(0)
            return said.read().decode("utf-8", "replace").strip()

    def _at_exit(self) -> None:
        self.stop()


def _resume(pid: int) -> bool:
    """What `uu resume` does: asks the `uu` with this id to go on, by the memory that it has for that
    (profiler/recorder/src/switch.rs). False: it does not record yet, or has not done it yet."""
    folder = "/proc/%d/fd" % pid
    try:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if not os.readlink(path).startswith("/memfd:uu-switch"):
                continue
            with open(path, "r+b", buffering=0) as file:
                # It has just been made.
                if os.fstat(file.fileno()).st_size < mmap.PAGESIZE:
                    return False
                with mmap.mmap(file.fileno(), mmap.PAGESIZE) as memory:
                    return _ask(memory)
    except FileNotFoundError:
        # It has ended, or closed one while it was looked at.
        pass
    return False


def _ask(memory: mmap.mmap) -> bool:
    """Asks once; whether it was done."""
    magic, asked, done = memory[:8], *struct.unpack_from("<II", memory, 24)
    if magic != b"uu-swtc1" or asked and asked != done:
        return False
    if not asked:
        # To go on (an even number), asked for the first time.
        struct.pack_into("<I", memory, 24, 2)
    return bool(asked)


def _wait_for_timer() -> None:
    """Waits until the sampler in this process has given the calling thread its timer, which needs a moment at which the
    thread can be borrowed. Where threads are sampled from outside, there is none."""
    mark = "tid.%d\n" % threading.get_native_id()
    end = time.monotonic() + ARMED
    try:
        while time.monotonic() < end:
            with open("/proc/self/maps") as maps:
                if "/memfd:uu-" not in maps.read():
                    return
            with open("/proc/self/timers") as timers:
                if mark in timers.read():
                    return
            time.sleep(0.002)
    except OSError:
        # A kernel without the list.
        pass


def _chosen(pattern: str | None) -> str | None:
    """The path that a pattern stands for now."""
    if pattern is None:
        return None
    path = pattern.replace("%p", str(os.getpid()))
    numbers = itertools.count(1) if "%n" in path else [1]
    return next(name for name in (path.replace("%n", str(number)) for number in numbers)
                if "%n" not in path or not os.path.exists(name))


def _reason(text: str, code: int) -> str:
    """What `uu` said of an error."""
    _, _, error = ("\n" + text).partition("\nuu: error: ")
    return error or text or "uu ended with code %d" % code


def _is_recorded() -> bool:
    """Whether `uu record` records the process, and hears what it asks."""
    try:
        # A label that is not there is taken away: nothing changes.
        return int(library().uu_label_set(b"uunwind.record", None)) != -errno.ENOTCONN
    except LibraryError:
        return False


def _section(result: int) -> None:
    if result < 0:
        events = "perf events time its samples (--kernel, or a rate above 1000)"
        why = events if -result == errno.ENOTSUP else os.strerror(-result)
        raise RecordError("the recording cannot be paused and resumed: %s" % why)


__all__ = ["record"]
