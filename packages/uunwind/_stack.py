"""Stacks as objects: Python functions and native ones, in the order in which they called each other."""

from __future__ import annotations

import os
import re
from ctypes import POINTER, byref, c_uint64, sizeof
from typing import Any, Iterable, Iterator, NamedTuple, Sequence, overload

from uunwind import _library
from uunwind._errors import LibraryError
from uunwind._library import FrameInfo, Request, library

#: More than a walk can return: 4,160 frames of two words at most, and the word that stands for those left out.
CAPACITY = 8448
#: Symbols that are kept; beyond, all are forgotten.
KEPT = 1 << 16

# Functions of CPython that only pass a call on, each whole or, before a *, the beginning of a name; `uu report` hides
# the same (python-unwinder/analyse/src/half.rs; a test compares the two).
GLUE = """
    _PyEval_* _TAIL_CALL_* PyEval_* _PyFunction_* _PyObject_Call* _PyObject_FastCall* _PyObject_MakeTpCall*
    _PyObject_VectorcallTstate* _PyObject_VectorcallDictTstate* _PyVectorcall_* _Py_VectorCall* _Py_BuiltinCall*
    _Py_CallBuiltin* _PyCallMethodDescriptor* PyObject_Call* PyObject_Vectorcall* PyVectorcall_* _PyRun_* PyRun_*
    pyrun_* pymain_* PyImport_Import* builtin___import__* builtin_exec* cfunction_call* cfunction_vectorcall*
    gen_send_ex* method_vectorcall* slot_tp_* vectorcall_m* _call_with_exceptions_* Py_BytesMain Py_Main Py_RunMain
    call_maybe call_method call_unbound call_unbound_noarg function_code_fastcall gen_iternext gen_send
    import_find_and_load import_name method_call object_vacall pythread_wrapper run_eval_code_obj run_mod thread_run
    type_call type_vectorcall
""".split()
# Inlined there, and in none of the names that `uu report` compares.
_INLINED = ["_PyObject_Vectorcall*", "call_function"]
_is_glue = re.compile(
    "|".join(re.escape(name[:-1]) + ".*" if name.endswith("*") else re.escape(name) for name in GLUE + _INLINED)
).fullmatch
# What ctypes and cffi pass calls through.
_is_binding = re.compile(r"(_ctypes|_cffi_backend)\..*|libffi[.-].*").fullmatch
_is_own = re.compile(r"libuunwind[.-].*").fullmatch

NATIVE_FRAMES = ("hide", "show", "none")


class Frame(NamedTuple):
    """A function that had not returned. What is not available is empty, 0 or None."""

    #: Its name: a qualified one where the language's runtime keeps one (CPython since 3.11), native ones demangled.
    function: str
    #: The source file, as the runtime or the debug information has it.
    file: str | None
    #: The line that it was executing.
    line: int | None
    #: "python", "lua", "ruby", "php", "perl", "javascript", "java" or whatever plugin described it; "native"; "jit":
    #: code that a JIT registered; "omitted": `function` says how many frames of a deep stack were left out here.
    language: str
    #: Native frames: the path of the executable or library that it is in.
    module: str | None
    #: Native frames: the return address in this process, or the instruction that was interrupted.
    address: int | None
    #: The compiler put this function into the one that the next frame shows.
    inlined: bool = False

    def __str__(self) -> str:
        if self.language == "omitted":
            return self.function
        if self.language not in ("native", "jit"):
            return 'File "%s", line %s in %s' % (self.file, self.line or "?", self.function)
        name = self.function or "%#x" % (self.address or 0)
        place = " (%s:%d)" % (self.file, self.line) if self.file and self.line else ""
        return name + place + (" in " + os.path.basename(self.module) if self.module else "")


class Stack(Sequence[Frame]):
    """The frames of one thread, the most recent call first."""

    __slots__ = ("_frames", "stop", "reason", "complete")

    def __init__(self, frames: Iterable[Frame], stop: int = 1, doubt: int = 0) -> None:
        self._frames = tuple(frames)
        #: Why the walk ended: a number of `enum uu_stop` (docs/stop-reasons.md).
        self.stop = stop
        #: The same in words.
        self.reason = _library.STOPS.get(stop, "stop reason %d" % stop)
        #: Whether the outermost frame was reached and nothing is missing.
        self.complete = stop in _library.COMPLETE and doubt == 0

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Frame, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._frames[index]

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[Frame]:
        return iter(self._frames)

    def __repr__(self) -> str:
        end = "complete" if self.complete else self.reason
        return "<Stack of %d frames, %s: %s>" % (len(self), end, ", ".join(frame.function or "?" for frame in self[:8]))

    def __str__(self) -> str:
        lines = ["  " + str(frame) for frame in self]
        if not self.complete:
            lines.append("  (what called this is not shown: %s)" % self.reason)
        return "\n".join(lines)


class Walk(NamedTuple):
    """The words of one stack, as the library wrote them, and how it ended."""

    words: list[int]
    stop: int
    doubt: int


def stack(*, native: str = "hide", skip: int = 0) -> Stack:
    """The stack of the caller: Python's functions and native ones.

    native: "hide" leaves out those of the interpreter's own functions that only pass a call on, "show" shows all,
    "none" leaves out all native frames, so that no symbols are read; what has been read is kept.
    skip: how many of the innermost Python functions are left out.
    """
    _check(native)
    return made(without_own(_walk(), skip), native)


def _check(native: str) -> None:
    if native not in NATIVE_FRAMES:
        raise ValueError("native=%r: give one of %s" % (native, ", ".join(map(repr, NATIVE_FRAMES))))


def request(capacity: int) -> tuple[Request, Any]:
    """An empty request, and the memory for its frames."""
    words = (c_uint64 * capacity)()
    asked = Request(size=sizeof(Request), capacity=capacity)
    asked.frames = words
    return asked, words


_was_set_up = False


def set_up() -> None:
    """The set-up that frames of languages need, once; it is repeated where a walk finds that it is due."""
    global _was_set_up
    if not _was_set_up:
        library().setup()
        _was_set_up = True


def _walk() -> Walk:
    of = library()
    set_up()
    for attempt in (0, 1):
        asked, words = request(CAPACITY)
        done = of.uu_walk(byref(asked))
        if done < 0:
            raise LibraryError("the stack cannot be walked: %s" % os.strerror(-done))
        if attempt or not asked.doubt & _library.DOUBT_SETUP_DUE:
            break
        # Objects that were loaded since the last set-up.
        of.setup()
    return Walk(words[: asked.words], asked.stop, asked.doubt)


def _split(words: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """The frames of a stack: kind, and words."""
    at = 0
    while at < len(words):
        kind = words[at] >> 56 & 15
        count = 2 if kind in (_library.SEMANTIC, _library.WINDOW) else 1
        yield kind, list(words[at : at + count])
        at += count


def without_own(walk: Walk, skip: int = 0) -> Walk:
    """A stack without the frames of this package that took it, and without `skip` Python functions more."""
    own = os.path.dirname(_walk.__code__.co_filename) + os.sep
    at = end = 0
    is_own = True
    for kind, words in _split(walk.words):
        at += len(words)
        if kind == _library.SEMANTIC:
            is_own = is_own and _describe(words).file.startswith(os.fsencode(own))
            if not is_own:
                if not skip:
                    break
                skip -= 1
            end = at
    return walk._replace(words=walk.words[end:])


def _describe(words: Sequence[int]) -> FrameInfo:
    info = FrameInfo(size=sizeof(FrameInfo))
    memory = (c_uint64 * 2)(*words)
    library().uu_describe(memory, byref(info))
    return info


def _text(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "replace")


# What native code is called, by what it is: names of an object with this build-id at this address of its file.
_symbols: dict[tuple[Any, ...], list[tuple[str, str | None, int | None, bool]]] = {}


def _key(info: FrameInfo) -> tuple[Any, ...]:
    return (info.file, bytes(info.build_id[: info.build_id_len]), info.file_address, info.flags & _library.INFO_EXACT)


def _look_up(frames: Sequence[tuple[list[int], FrameInfo]]) -> dict[tuple[Any, ...], Any]:
    """The functions of native frames, inlined ones first: each object's file is read once."""
    found = {}
    missing: dict[tuple[Any, ...], int] = {}
    for words, info in frames:
        key = _key(info)
        if key in _symbols:
            found[key] = _symbols[key]
        else:
            missing[key] = words[0]
    if missing:
        if len(_symbols) + len(missing) > KEPT:
            _symbols.clear()
        keys, array = list(missing), (c_uint64 * len(missing))(*missing.values())
        first = POINTER(_library.Symbol)()
        count = library().uu_symbolize(array, len(array), byref(first))
        if count < 0:
            raise LibraryError("native functions cannot be named: %s" % os.strerror(-count))
        named: dict[int, Any] = {}
        at = first
        while at:
            symbol = at.contents
            entry = (_text(symbol.function), _text(symbol.file) or None, symbol.line or None,
                     bool(symbol.flags & _library.SYMBOL_INLINED))
            named.setdefault(symbol.frame, []).append(entry)
            at = symbol.next
        library().uu_symbols_free(first)
        for index, key in enumerate(keys):
            found[key] = named.get(index, [])
            # Without a build-id, another file may be loaded there later.
            if key[1]:
                _symbols[key] = found[key]
    return found


def made(walk: Walk, native: str) -> Stack:
    """The stack of these words."""
    (stack,) = made_all([walk], native)
    return stack


def made_all(walks: Sequence[Walk], native: str) -> list[Stack]:
    """The stacks of these words, for which each object's file is read once."""
    described = [[(kind, words, _describe(words)) for kind, words in _split(walk.words)] for walk in walks]
    symbols = {}
    if native != "none":
        symbols = _look_up([(words, info) for stack in described for kind, words, info in stack
                            if kind == _library.NATIVE and info.file])
    stacks = []
    for walk, frames in zip(walks, described):
        interpreters = {info.file for _, _, info in frames if info.flags & _library.INFO_INTERPRETER}
        shown = []
        for kind, words, info in frames:
            if kind == _library.OMITTED:
                shown.append(Frame("(%d more)" % info.omitted, None, None, "omitted", None, None))
            elif kind == _library.SEMANTIC:
                shown.append(Frame(_text(info.function), os.fsdecode(info.file) or None, info.line or None,
                                   _text(info.language), None, None))
            elif native != "none":
                shown.extend(_native(kind, info, symbols, interpreters if native == "hide" else None))
        stacks.append(Stack(shown, walk.stop, walk.doubt))
    return stacks


def _native(kind: int, info: FrameInfo, symbols: dict[tuple[Any, ...], Any], hosts: set[bytes] | None
            ) -> Iterator[Frame]:
    """The functions of one machine frame. `hosts`: objects of interpreters, whose glue is left out; or None."""
    module = os.fsdecode(info.file) or None
    name = os.path.basename(module or "")
    if kind == _library.WINDOW:
        yield Frame(_text(info.function), module, info.line or None, "jit", None, info.address)
        return
    if hosts is not None and (info.flags & _library.INFO_INTERPRETER or _is_binding(name) or _is_own(name)):
        return
    named = symbols.get(_key(info)) or [("", None, None, False)]
    for function, file, line, inlined in named:
        # A stripped interpreter: a function without a name says nothing.
        if hosts and info.file in hosts and (not function or _is_glue(function.partition(".")[0])):
            continue
        yield Frame(function, file, line, "native", module, info.address, inlined)


__all__ = ["Frame", "Stack", "stack"]
