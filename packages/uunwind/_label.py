"""Labels of samples: what a thread, or an asyncio task, works on."""

from __future__ import annotations

import contextvars
import errno
import functools
import inspect
import sys
import threading
import types
import warnings
from typing import Any, Awaitable, Callable, Generator, Mapping, TypeVar

from uunwind._errors import LabelWarning, LibraryError
from uunwind._library import library

Called = TypeVar("Called", bound=Callable[..., Any])
Labels = Mapping[str, str]

#: The longest key and value, in bytes (UU_LABEL_KEY and UU_LABEL_VALUE of uu.h).
KEY, VALUE = 63, 255
_NONE: Labels = types.MappingProxyType({})
_ERRORS = {
    errno.ENOSPC: "there are 16 labels at most, and 1,000 bytes of text in all",
    errno.EBUSY: "a handler interrupted this very call",
}

# The labels of the task, or of the thread's own code: those that its samples should have.
_wanted: contextvars.ContextVar[Labels] = contextvars.ContextVar("uunwind.label", default=_NONE)
# The labels that the thread's samples have now.
_thread = threading.local()


class label:
    """While the block runs, or the decorated function, each sample of this thread has these labels.

        with uunwind.label(request="42", user=name): ...

    They are kept in a contextvars.Context: of an asyncio task they are the task's, also where it waits while others
    run, and tasks that it makes inherit them. Threads that it starts do not. Keys that are no identifiers are given as
    a mapping: label({"http.route": "/"}). A value of None takes a label away for the block. Values become text.

    Where nothing records the process, or libuunwind is missing, nothing happens.
    """

    def __init__(self, labels: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._labels = {**(labels or {}), **more}
        self._entered: list[tuple[contextvars.Token[Labels], Labels]] = []

    def __enter__(self) -> label:
        before = _wanted.get()
        self._entered.append((_wanted.set(self._added(before)), before))
        _follow_tasks()
        _apply(_wanted.get())
        return self

    def __exit__(self, *error: object) -> None:
        token, before = self._entered.pop()
        try:
            _wanted.reset(token)
        except ValueError:
            # A generator that is closed in another context.
            _wanted.set(before)
        _apply(_wanted.get())

    def __call__(self, function: Called) -> Called:
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError("label() cannot decorate a generator function: use `with uunwind.label(...)` inside of it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                return await _Steps(function(*args, **kwargs), self._labels)

            return coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with label(self._labels):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    def _added(self, before: Labels) -> Labels:
        after = dict(before)
        for key, value in self._labels.items():
            if value is None:
                after.pop(str(key), None)
            elif _fits(str(key), str(value)):
                after[str(key)] = str(value)
        return types.MappingProxyType(after)


def _fits(key: str, value: str) -> bool:
    why = None
    if not key or "\0" in key or "\0" in value:
        why = "it has no key, or a NUL in it"
    for text, room, what in ((key, KEY, "key"), (value, VALUE, "value")):
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            why = "its %s is not UTF-8" % what
            continue
        if size > room:
            why = "its %s has %d bytes, of %d at most" % (what, size, room)
    if why:
        _warn(key, why, 5)
    return why is None


def _warn(key: str, why: str, level: int) -> None:
    """`level`: how many calls up the code is that gave the label."""
    warnings.warn("the label %.80r was left out: %s" % (key, why), LabelWarning, stacklevel=level)


def _apply(wanted: Labels) -> None:
    """Makes these the labels of the thread's samples."""
    now = getattr(_thread, "now", _NONE)
    if wanted is now:
        return
    try:
        set_label = library().uu_label_set
    except LibraryError:
        return
    after = dict(now)
    for key in now:
        if key in wanted:
            continue
        result = set_label(key.encode(), None)
        if result == 0:
            del after[key]
        elif result == -errno.ENOTCONN:
            # The recording is over. Another one knows of no label.
            _thread.now = _NONE
            return
    for key, value in wanted.items():
        if now.get(key) == value:
            continue
        result = set_label(key.encode(), value.encode())
        if result == 0:
            after[key] = value
        elif result == -errno.ENOTCONN:
            # Nothing records this process, or this thread.
            _thread.now = _NONE
            return
        else:
            _warn(key, _ERRORS.get(-result, "error %d" % -result), 4)
    _thread.now = wanted if after == wanted else types.MappingProxyType(after)


class _Steps:
    """Awaits a coroutine, with labels in each of its steps and without them in between: in any event loop."""

    def __init__(self, inner: Awaitable[Any], labels: Mapping[str, Any]) -> None:
        self._inner, self._labels = inner, labels

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._inner.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                with label(self._labels):
                    waits_for = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            value = error = None
            try:
                value = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: B902
                error = thrown


_followed: list[type] = []


def _follow_tasks() -> None:
    """Lets asyncio change the thread's labels with the task that runs, from the first label on."""
    events = sys.modules.get("asyncio.events")
    handle = getattr(events, "Handle", None)
    if handle is None or handle in _followed:
        return
    _followed.append(handle)
    run = handle._run

    @functools.wraps(run)
    def run_with_labels(self: Any) -> Any:
        before = getattr(_thread, "now", _NONE)
        wanted = self._context.get(_wanted, _NONE)
        if wanted is before:
            result = run(self)
        else:
            _apply(wanted)
            result = run(self)
        # What the callback set was for its own context, and holds only while that runs.
        _apply(before)
        return result

    handle._run = run_with_labels


__all__ = ["label"]
