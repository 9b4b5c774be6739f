"""Python code that the interpreter runs between the instructions of other Python code: handlers of signals, trace and
monitoring functions, destructors; exceptions in flight; and what a forked child does."""

import os
import signal
import sys
import tempfile

import snap


def on_signal(number, frame):
    snap.snap()
    snap.snap_released()


def with_a_handler():
    signal.signal(signal.SIGUSR1, on_signal)
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


traced = []


def tracer(frame, event, argument):
    if frame.f_code is being_traced.__code__:
        traced.append(event)
        if event in ("call", "return"):
            snap.snap()
    return tracer if frame.f_code is being_traced.__code__ else None


def being_traced(n):
    return n + 1


def with_a_tracer():
    sys.settrace(tracer)
    being_traced(1)
    sys.settrace(None)
    assert traced[0] == "call" and traced[-1] == "return", traced


def with_monitoring():
    if not hasattr(sys, "monitoring"):
        return
    tool, events = 3, sys.monitoring.events
    sys.monitoring.use_tool_id(tool, "test")
    sys.monitoring.register_callback(tool, events.PY_START, lambda code, offset: snap.snap())
    sys.monitoring.set_local_events(tool, being_traced.__code__, events.PY_START)
    being_traced(2)
    sys.monitoring.set_local_events(tool, being_traced.__code__, 0)
    sys.monitoring.free_tool_id(tool)


class Dying:
    def __del__(self):
        snap.snap()


def with_a_destructor():
    dying = Dying()
    del dying


def in_flight():
    try:
        raise ValueError
    except ValueError:
        try:
            snap.snap()
            raise KeyError
        finally:
            snap.snap_released()


def with_exceptions():
    try:
        in_flight()
    except KeyError:
        snap.snap()


def with_a_child():
    if "UU_TEST_SAMPLES" in os.environ:  # written by the parent, at its end
        return
    child = os.fork()
    if child == 0:
        snap.snap()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def with_a_remote_script():
    """A script that another process asked for: here it is this one."""
    if not hasattr(sys, "remote_exec"):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write("import snap\nsnap.snap()\nsnap.snap_released()\nsnap.remotely = True\n")
        script.flush()
        sys.remote_exec(os.getpid(), script.name)
        while not hasattr(snap, "remotely"):
            pass


def main():
    with_a_remote_script()
    with_a_handler()
    with_a_tracer()
    with_monitoring()
    with_a_destructor()
    with_exceptions()
    with_a_child()


main()
