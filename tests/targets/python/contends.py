"""A thread that waits for a threading.Lock, ROUNDS times; says for how long at least and at most, in ns."""

import threading
import time

ROUNDS = 10
lock = threading.Lock()
at_least = at_most = 0


def waits():
    global at_most
    begin = time.monotonic_ns()
    ready.set()
    lock.acquire()
    at_most += time.monotonic_ns() - begin
    lock.release()


for _ in range(ROUNDS):
    ready = threading.Event()
    lock.acquire()
    thread = threading.Thread(target=waits)
    thread.start()
    ready.wait()
    while True:
        with open(f"/proc/self/task/{thread.native_id}/stat") as file:
            if file.read().rsplit(")", 1)[1].split()[0] == "S":
                break
    seen = time.monotonic_ns()
    time.sleep(0.02)
    at_least += time.monotonic_ns() - seen
    lock.release()
    thread.join()
print(ROUNDS, at_least, at_most)
