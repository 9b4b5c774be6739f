"""A thread takes samples of itself with the GIL and without it; another one waits for the GIL and is sampled by the
first, which holds it; a third has nothing to do with Python."""

import ctypes
import os
import threading

held = ctypes.PyDLL(os.environ["UU_TEST_CAP"])  # calls keep the GIL
released = ctypes.CDLL(os.environ["UU_TEST_CAP"])  # calls release it
gil = ctypes.PyDLL(os.environ["UU_TEST_GIL"])
waits = ctypes.CDLL(os.environ["UU_TEST_GIL"])


def with_gil():
    held.cap()


def without_gil():
    released.cap()


def waiting():
    waits.returns_to_python()


for _ in range(10):
    with_gil()
    without_gil()
released.native_thread_cap()
thread = threading.Thread(target=waiting)
thread.start()
gil.sample_waiter(20, 200)
thread.join()
