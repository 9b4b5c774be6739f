"""The first thread keeps the GIL in a call that lasts for ever; "ready" is written shortly before. The second one then
wants to go on with its own code, and the third one sleeps without the GIL."""

import ctypes
import threading
import time


def wants():
    while True:
        pass


def sleeps():
    time.sleep(100000)


def keeps():
    ctypes.PyDLL(None).pause()


threading.Thread(target=sleeps, daemon=True).start()
threading.Thread(target=wants, daemon=True).start()
print("ready", flush=True)
keeps()
