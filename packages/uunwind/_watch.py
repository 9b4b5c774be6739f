"""The process beside a watched one: _watch.py UU PID SECONDS REPEAT EXIT

Reads its standard input: "f" begins the time anew, "q" ends it. It ends with the watched process, too. Uses nothing of
the package: it is run by path, by an interpreter that looks at no environment.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

#: Seconds between two looks at whether the watched process is there still.
LOOK = 1.0


def main() -> None:
    uu, seconds, repeat, ends = sys.argv[1], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    pid = int(sys.argv[2])
    # When it barks; None: it has, and waits to be fed.
    end_of_time: float | None = time.monotonic() + seconds
    while os.getppid() == pid:
        left = LOOK if end_of_time is None else end_of_time - time.monotonic()
        if left > 0:
            ready, _, _ = select.select([0], [], [], min(left, LOOK))
            if ready:
                said = os.read(0, 4096)
                if not said or b"q" in said:
                    return
                end_of_time = time.monotonic() + seconds
            continue
        print("uunwind: process %d has gone on for %g s without an end. Its threads:" % (pid, seconds), flush=True)
        code = subprocess.call([uu, "dump", "-p", str(pid)], stdin=subprocess.DEVNULL)
        if code:
            print("uunwind: uu dump ended with code %d" % code, flush=True)
        if ends:
            end(pid)
            return
        end_of_time = time.monotonic() + seconds if repeat else None


def end(pid: int) -> None:
    print("uunwind: process %d is ended by SIGABRT" % pid, flush=True)
    os.kill(pid, signal.SIGABRT)
    limit = time.monotonic() + 10
    while os.getppid() == pid and time.monotonic() < limit:
        time.sleep(0.05)
    if os.getppid() == pid:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
