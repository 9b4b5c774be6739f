"""One thread holds a lock for long, another one wants it: locks.c shows which one waits, and where."""

import threading
import time

lock = threading.Lock()
turn = threading.Barrier(2)
done = []


def hold():
    while not done:
        with lock:
            turn.wait()
            time.sleep(0.1)
        turn.wait()


def wants():
    waits = 0
    while not done:
        turn.wait()
        if not lock.acquire(blocking=False):
            lock.acquire()  # waits here
            waits += 1
        lock.release()
        if waits == 3:
            done.append(True)
        turn.wait()


threads = [threading.Thread(target=target) for target in (hold, wants)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
