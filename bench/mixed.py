#!/usr/bin/env python3
"""What uu_walk() costs beside the recorder's own walk, over a stack of Python, Lua and C, in one process.

  mixed.py UU [ROUNDS]

mixed/stack.py runs under `uu record --explicit`. A sample includes its signal and its record, so both are compared by
the difference between two depths, divided by the difference in frames; the ratio is that of one round."""

import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEPTHS = [20, 120]  # Python functions, and as many of Lua


def main():
    uu, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 21
    prefix = os.path.dirname(os.path.dirname(uu))
    with tempfile.TemporaryDirectory() as folder:
        module = os.path.join(folder, "mixed.so")
        options = ["-O2", "-shared", "-fPIC", "-I/usr/include/lua5.4", f"-I{prefix}/include"]
        sources = [os.path.join(HERE, "mixed/mixed.c"), "-llua5.4", "-ldl"]
        subprocess.run(["gcc", *options, "-o", module, *sources], check=True)
        record = [uu, "record", "--explicit", "-r", "1", "-o", os.path.join(folder, "x.uu"), "--", "/usr/bin/python3"]
        program = [os.path.join(HERE, "mixed/stack.py"), module, f"{prefix}/lib/libuunwind.so.0", str(rounds)]
        env = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"))
        run = subprocess.run(
            record + program + [str(depth) for depth in DEPTHS], env=env, capture_output=True, text=True
        )
        if run.returncode != 0:
            sys.exit(f"it failed with status {run.returncode}:\n{run.stdout}{run.stderr}")
    measured = {}
    for line in run.stdout.splitlines():
        number, what, count, ticks = line.split()
        measured.setdefault((int(number), what), []).append((int(count), int(ticks)))

    def slope(number, what):
        (near, few), (far, many) = measured[number, what]
        return (many - few) / (far - near)

    print(f"\n### A frame of Python, Lua and C: {rounds} rounds\n")
    print("| stack | a sample's ticks | uu_walk's ticks | ratio: median |")
    print("|---|---|---|---|")
    for stack, words in [("fresh", "another one each time"), ("same", "the same again")]:
        of = {what: [slope(n, f"{stack}-{what}") for n in range(1, rounds + 1)] for what in ("sample", "walk")}
        ratio = statistics.median(walk / sample for walk, sample in zip(of["walk"], of["sample"]))
        print(
            f"| {words} | {statistics.median(of['sample']):.1f} | {statistics.median(of['walk']):.1f} | {ratio:.2f} |"
        )


main()
