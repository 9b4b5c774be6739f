"""Calls `outer` of a compiled module, which calls back: run.py FOLDER MODULE LIBRARY."""

import ctypes
import importlib
import sys

folder, module, path = sys.argv[1:]
sys.path.insert(0, folder)
library = ctypes.PyDLL(path)


def back():
    library.cap()


importlib.import_module(module).outer(back)
