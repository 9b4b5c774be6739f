"""uu shows where a program spends its CPU time: one picture, every language in it.

This package holds the command `uu` and the library libuunwind, and no Python code of use to programs.
"""

import os

#: The folder with bin/uu, lib/libuunwind.so.0 and include/uu.h.
TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree")
