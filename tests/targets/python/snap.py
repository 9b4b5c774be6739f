"""What the test programs share: snap() writes down the runtime's own view of the stack, then takes a sample.

The oracle is one line of JSON a sample, in the file $UU_TEST_ORACLE:
  pid, tid   who takes the sample
  frames     [id(code), f_lasti, line, first line, qualname, file name], innermost first, from sys._getframe
             id and f_lasti are null where they are not to be compared
  lasti_from index of the first frame whose f_lasti did not move between the oracle and the sample
  shape      what the whole stack should look like, outermost first, or null: alternatives of tokens
               E{a b c}   one activation of the interpreter with these Python frames
               name       a native frame of this symbol
               @libc      a native frame in an object whose file name begins so
               ~name      as `name`, but only where the interpreter has a symbol table
             Native frames that no token asks for may stand anywhere between.
"""

import json
import os
import sys
import threading

try:
    import _uu_embed as held  # calls keep the GIL

    released = held  # calls release it
except ImportError:
    import ctypes

    held = ctypes.PyDLL(os.environ["UU_TEST_CAP"])
    released = ctypes.CDLL(os.environ["UU_TEST_CAP"])
outer = []  # frames of other interpreters, which have run this one on the same stack
_callers = []  # in 3.9, frames that gen.throw() hides
_file = os.open(os.environ["UU_TEST_ORACLE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def frames_from(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append([id(code), frame.f_lasti, frame.f_lineno, code.co_firstlineno, name, code.co_filename])
        frame = frame.f_back
    return found


def all_frames(frame):
    """Those of this interpreter from a frame on, and those of the others."""
    frames = frames_from(frame)
    if _callers and frames[-1][4] != _callers[-1][4]:
        frames += _callers
    # Interpreters have code objects of the same contents, which are described once.
    return [[None, *rest] for _, *rest in frames + outer] if outer else frames


def remember_callers():
    """gen.throw() cuts the chain of frames in 3.9: the oracle then gets the rest from here, of this line."""
    _callers[:] = frames_from(sys._getframe(1))
    _callers[0][1] = None


def write(frames, shapes, lasti_from, tid=None):
    if isinstance(shapes, str):
        shapes = [shapes]
    entry = {"pid": os.getpid(), "tid": tid or threading.get_native_id(), "frames": frames, "lasti_from": lasti_from}
    os.write(_file, (json.dumps(dict(entry, shapes=shapes)) + "\n").encode())


def last_line(code):
    if not hasattr(code, "co_lines"):  # up to 3.9
        import dis

        return max(line for _, line in dis.findlinestarts(code))
    return max(line for _, _, line in code.co_lines() if line is not None)


def snap(shapes=None):
    """The sample is taken on this function's last line; the oracle's line for its own frame says so."""
    frames = all_frames(sys._getframe(0))
    frames[0][2] = last_line(sys._getframe(0).f_code)
    write(frames, shapes, 1)
    held.cap()


def snap_released(shapes=None):
    """As snap(), with the GIL released while the sample is taken."""
    frames = all_frames(sys._getframe(0))
    frames[0][2] = last_line(sys._getframe(0).f_code)
    write(frames, shapes, 1)
    released.n1()
