"""A library whose plugins cannot be found at first: a stack that may lack frames says so, and the next uu_setup() opens
them. Arguments: the library, and the folder that is given the name "plugins" beside it in the middle."""

import ctypes
import os
import sys

from uu_structures import Request, SEMANTIC, u64

uu = ctypes.CDLL(sys.argv[1])
words = (u64 * 1000)()


def walk():
    request = Request(size=ctypes.sizeof(Request), frames=ctypes.addressof(words), capacity=1000)
    assert uu.uu_walk(ctypes.byref(request)) == 0
    semantic = Request(size=ctypes.sizeof(Request), frames=ctypes.addressof(words), capacity=1000, flags=SEMANTIC)
    assert uu.uu_walk(ctypes.byref(semantic)) == 0
    return semantic.count, request.doubt


SETUP_DUE = 2
assert uu.uu_setup() > 3
count, doubt = walk()
assert count == 0 and doubt & SETUP_DUE, (count, doubt)
os.rename(sys.argv[2], os.path.join(os.path.dirname(sys.argv[1]), "uu", "plugins"))
assert uu.uu_setup() > 3
assert walk() == (2, 0), walk()
print("ok")
