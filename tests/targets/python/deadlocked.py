"""Two threads, each of which holds what the other one waits for; says their ids. By the first argument:

rlocks  two locks of Python's (threading.RLock)
mixed   one of Python's, and a mutex of the C library's
"""

import ctypes
import sys
import threading

mixed = sys.argv[1] == "mixed"
libc = ctypes.CDLL(None)
one = threading.RLock()


class Mutex:
    """A pthread_mutex_t of its static initialiser."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(64)

    def acquire(self):
        libc.pthread_mutex_lock(self.memory)


two = Mutex() if mixed else threading.RLock()
both = threading.Barrier(3)


def takes(first, second):
    first.acquire()
    both.wait()
    second.acquire()


threads = [threading.Thread(target=takes, args=args, daemon=True) for args in ((one, two), (two, one))]
for thread in threads:
    thread.start()
both.wait()
print(threads[0].native_id, threads[1].native_id, flush=True)
sys.stdin.readline()
