"""Python, C, Python, C through a binding: `ctypes`, or `cffi` by the backend alone."""

import sys


def by_ctypes(path):
    import ctypes

    library = ctypes.CDLL(path)
    function = ctypes.CFUNCTYPE(None)

    def back():
        library.cap()

    def call():
        library.outer(function(back))

    return call


def by_cffi(path):
    import _cffi_backend as backend

    library = backend.load_library(path)
    nothing = backend.new_void_type()
    function = backend.new_function_type((), nothing, False)
    takes_function = backend.new_function_type((function,), nothing, False)

    # The library is closed when nothing refers to it.
    def back():
        library.load_function(function, "cap")()

    def call():
        library.load_function(takes_function, "outer")(backend.callback(function, back))

    return call


call = {"ctypes": by_ctypes, "cffi": by_cffi}[sys.argv[1]](sys.argv[2])
call()
