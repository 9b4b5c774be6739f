#!/usr/bin/env python3
"""What uu_setup() costs a program: CPython with its usual objects, in a new process each time.

    bench/set_up.py [LIBRARY] [ROUNDS]

Prints medians of CPU time, as ratios to the interpreter's own start: with an empty cache, from the cache, and called
again where nothing new was loaded. In milliseconds, too, which are this machine's.
"""

import os
import statistics
import subprocess
import sys
import tempfile

CALLS = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
started = time.process_time()
for _ in range(2):
    before = time.process_time()
    assert library.uu_setup() > 0
    print(time.process_time() - before)
print(started)
"""


def main():
    library = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/uu/lib/libuunwind.so.0")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    found = {"empty cache": [], "from the cache": [], "again": []}
    starts = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for kind in ["empty cache", "from the cache"]:
                environment = dict(os.environ, XDG_CACHE_HOME=cache)
                call = [sys.executable, "-c", CALLS, library]
                out = subprocess.run(call, env=environment, check=True, capture_output=True, text=True).stdout
                first, again, started = map(float, out.split())
                found[kind].append(first)
                found["again"].append(again)
                starts.append(started)
    start = statistics.median(starts)
    print(f"the interpreter's own start: {start * 1e3:.1f} ms")
    for kind, times in found.items():
        middle = statistics.median(times)
        print(f"uu_setup(), {kind}: {middle / start:.3f} of it, {middle * 1e3:.2f} ms")


main()
