"""Four threads at once, a thread that sleeps without the GIL and is sampled from outside, and a thread without
Python."""

import os
import sys
import threading
import time

import snap as tools
from snap import released, snap

# 3.11 calls a thread's function, `self._target(*args)`, by way of C; later versions stay in the same activation. From
# 3.14 on `run` itself is called by way of C (`Context.run`).
ROOT = "E{Thread._bootstrap Thread._bootstrap_inner Thread.run"
ROOTS = [ROOT + " ", ROOT + "} E{", "E{Thread._bootstrap Thread._bootstrap_inner} E{Thread.run "]


# The program stands still at samples, for as long as somebody looks at it.
STANDS = "UU_TEST_STANDS" in os.environ


def rec(n):
    if n == 0:
        return snap([root + "taker rec rec rec snap} cap" for root in ROOTS])
    return rec(n - 1)


def taker(gate):
    gate.wait()
    for _ in range(25):
        rec(2)


def sleeper(state):
    state["tid"] = threading.get_native_id()
    state["ident"] = threading.get_ident()
    state["ready"].set()
    time.sleep(3600.0 if STANDS else 1.0)


def in_sleep(tid):
    """Whether the kernel says that the thread waits in a sleep: nanosleep, clock_nanosleep, select or pselect6."""
    with open(f"/proc/self/task/{tid}/syscall") as file:
        return file.read().split()[0] in ("35", "230", "23", "270")


def is_pending(tid):
    """Whether a signal for the thread has not been delivered yet."""
    with open(f"/proc/self/task/{tid}/status") as file:
        return any(line.startswith("SigPnd:") and int(line.split()[1], 16) for line in file)


def sample_a_sleeper():
    state = {"ready": threading.Event()}
    thread = threading.Thread(target=sleeper, args=(state,), daemon=STANDS)
    thread.start()
    state["ready"].wait()
    while not in_sleep(state["tid"]):
        time.sleep(0.001)
    frames = tools.frames_from(sys._current_frames()[state["ident"]])
    tools.write(frames, [root + "sleeper} ~time_sleep @libc" for root in ROOTS], 0, state["tid"])
    released.cap_other(state["tid"])
    # The program does not end while the thread stands still.
    while STANDS and (is_pending(state["tid"]) or not in_sleep(state["tid"])):
        time.sleep(0.001)
    if not STANDS:
        thread.join()


def sample_a_native_thread():
    tid = released.native_thread_cap()
    assert tid > 0
    tools.write([], "n1 n2 n3 cap", 0, tid)


def main():
    gate = threading.Barrier(4)
    threads = [threading.Thread(target=taker, args=(gate,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    sample_a_sleeper()
    sample_a_native_thread()
    for thread in threads:
        thread.join()


main()
