"""Writes down every call between Python functions of this process: where, by whom, of what. For bench/programs.py.

A call is (caller, position of the instruction, callee); a function is (file, first line, qualified name)."""

import atexit
import opcode
import os
import pickle
import sys
import threading

folder = os.environ.get("CALL_GRAPH")
# 3.11 has two instructions for a call. Profiled, the second one makes it; specialised, mostly the first.
PRECALL = opcode.opmap.get("PRECALL")


def key(code):
    return code.co_filename, code.co_firstlineno, code.co_qualname


def positions(code, position):
    """Where the call of this instruction is made."""
    before = position - 4
    return [position, before] if before >= 0 and code.co_code[before] == PRECALL else [position]


def start():
    calls = set()

    def profile(frame, event, _):
        if event == "call" and frame.f_back is not None:
            calls.add((frame.f_back.f_code, frame.f_back.f_lasti, frame.f_code))

    def write():
        sys.setprofile(None)
        threading.setprofile(None)
        with open(os.path.join(folder, str(os.getpid())), "wb") as out:
            pickle.dump({(key(a), at, key(b)) for a, position, b in calls.copy() for at in positions(a, position)}, out)

    leave = os._exit

    def exit_at_once(status):
        write()
        leave(status)

    atexit.register(write)
    os._exit = exit_at_once
    threading.setprofile(profile)
    sys.setprofile(profile)


if folder:
    start()
