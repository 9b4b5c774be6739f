#!/usr/bin/env python3
"""What the memory of the last walk saves: a program of Python that samples itself, alone, under `uu record --explicit`,
and with `--no-replay`, in turn.

  replays.py UU [ROUNDS]     ROUNDS [7]

A figure is the median, over the rounds, of what a sample costs with replays, to what it costs without: CPU time more
than alone. Python is the one that runs this file."""

import os
import statistics
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replays/python.py")
SAMPLES = 8000


def main():
    uu = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    print("\n### A sample's cost with replays, to that without\n")
    print("| frames of Python | stack | ratio, median [least-greatest] |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "x.uu")
        record = [uu, "record", "-q", "--explicit", "-o", recording]

        def cost(before, words):
            command = [*before, sys.executable, PROGRAM, str(SAMPLES), *words]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{command}: {done.stdout}{done.stderr}")
            return int(done.stdout)

        for depth in ["20", "100"]:
            for way in ["same", "changes"]:
                ratios = []
                for _ in range(rounds):
                    alone = cost([], [depth, way])
                    with_replays, without = (
                        cost([*record, *options, "--"], [depth, way]) - alone for options in [[], ["--no-replay"]]
                    )
                    ratios.append(with_replays / max(without, 1))
                spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
                print(f"| {depth} | {way} | {statistics.median(ratios):.2f} [{spread}] |", flush=True)


if __name__ == "__main__":
    main()
