"""An interpreter that runs code in another one, on the same C stack, which does the same once more: each has a thread
state of its own, with frames that are linked to none of the others'."""

import sys

import snap

try:
    import _interpreters as interpreters  # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters

run = getattr(interpreters, "exec", None) or interpreters.run_string
# In 3.12, ctypes does not load where each interpreter has its own GIL.
OPTIONS = {"isolated": False} if sys.version_info[:2] == (3, 12) else {}
SHAPE = "E{<module> level} E{<module> level} E{<module> level "


def here(frame, outer):
    """The stack from a frame on that is calling run() in this line: where in it is not known yet."""
    frames = snap.frames_from(frame)
    frames[0][1] = None
    return frames + outer


def level(left, outer):
    if left == 0:
        snap.outer = outer
        snap.snap(SHAPE + "snap} cap")
        snap.snap_released(SHAPE + "snap_released} n1 n2 n3 cap")
        return
    text = f"import sys; sys.path[:] = {sys.path!r}; from sub_interpreters import level; level({left - 1}, OUTER)"
    inner = interpreters.create(**OPTIONS)
    failure = run(inner, text.replace("OUTER", repr(here(sys._getframe(0), outer))))
    interpreters.destroy(inner)
    if failure is not None:
        sys.exit(f"level {left}: {failure}")


if __name__ == "__main__":
    level(2, [])
