"""A thread that waits for a threading.Lock, ROUNDS times; says for how long at least and at most, in ns. With an
argument, it says "ready" first, and does so for each line of its input; then two threads want the GIL for a while."""

import sys
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


def spins(end):
    while time.monotonic() < end:
        sum(range(1000))


def contends():
    global at_least
    for _ in range(ROUNDS):
        one()
    print(ROUNDS, at_least, at_most, flush=True)


def one():
    global at_least, ready
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


if len(sys.argv) == 1:
    contends()
else:
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "end\n":
            break
        at_least = at_most = 0
        contends()
        threads = [threading.Thread(target=spins, args=(time.monotonic() + 0.3,)) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print("done", flush=True)
