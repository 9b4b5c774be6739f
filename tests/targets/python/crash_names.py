"""Crashes while threads with names wait; says which id has which name."""

import ctypes
import json
import sys
import threading

started = threading.Barrier(3)
held = threading.Lock()
held.acquire()


def waits():
    started.wait()
    held.acquire()


threads = [threading.Thread(target=waits, name=name, daemon=True) for name in ("reads the queue, long", "writer")]
for thread in threads:
    thread.start()
started.wait()
print(json.dumps({thread.native_id: thread.name for thread in threading.enumerate()}), flush=True)
ctypes.string_at(0)
