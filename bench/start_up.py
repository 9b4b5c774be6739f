#!/usr/bin/env python3
"""What the preloaded object adds to the start of a program: /bin/true, many times, alone, preloaded and not recording, and
recorded.

  start_up.py TREE [COUNT]     TREE: the folder with bin/ and lib/"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = "/bin/true"


def spawn(environment):
    begin = time.perf_counter()
    pid = os.posix_spawn(PROGRAM, [PROGRAM], environment)
    os.waitpid(pid, 0)
    return (time.perf_counter() - begin) * 1e6


def inner(count, out):
    """Runs under `uu record`: each start is recorded (environment as it is) or not (preload taken out), in turn."""
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("UU_")}
    pairs = [(spawn(plain), spawn(dict(os.environ))) for _ in range(count)]
    with open(out, "w") as file:
        json.dump(pairs, file)


def show(what, pairs):
    alone, other = zip(*pairs)
    added = statistics.median(b - a for a, b in pairs)
    print(f"| {what} | {statistics.median(alone):.0f} | {statistics.median(other):.0f} | {added:+.0f} |")


def main():
    tree = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    preload = os.path.join(tree, "lib/uu/libuu-preload.so")
    plain = dict(os.environ)
    idle = dict(plain, LD_PRELOAD=preload)
    print(f"\n### Start and end of {PROGRAM}, us, medians of {count} pairs\n")
    print("| | alone | with it | added |\n|---|---|---|---|")
    show("preloaded, not recording", [(spawn(plain), spawn(idle)) for _ in range(count)])
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "pairs")
        command = [os.path.join(tree, "bin/uu"), "record", "-o", os.path.join(folder, "x.uu"), "--",
                   sys.executable, os.path.abspath(__file__), "--inner", str(count), out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"uu failed:\n{done.stdout}{done.stderr}")
        with open(out) as file:
            show("recorded", json.load(file))


if __name__ == "__main__":
    if sys.argv[1] == "--inner":
        inner(int(sys.argv[2]), sys.argv[3])
    else:
        main()
