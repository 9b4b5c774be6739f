"""A thread runs a long C function of the interpreter itself, without the GIL and with it."""

import ctypes
import sys
import threading

name = "_Py_HashBytes" if sys.version_info < (3, 14) else "Py_HashBuffer"
size = 1 << 24
data = ctypes.create_string_buffer(size)


def function(library):
    found = getattr(library, name)
    found.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
    found.restype = ctypes.c_ssize_t
    return found


released = function(ctypes.CDLL(None))  # calls release the GIL
held = function(ctypes.PyDLL(None))  # calls keep it


def without_gil():
    released(data, size)


def with_gil():
    held(data, size)


def work():
    for _ in range(60):
        without_gil()
        with_gil()


thread = threading.Thread(target=work)
thread.start()
thread.join()
