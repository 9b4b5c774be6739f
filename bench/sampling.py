#!/usr/bin/env python3
"""Stacks that uu records of a Python program beside those of CPython 3.15's own `profiling.sampling`.

  sampling.py UU PYTHON [SECONDS [ROUNDS]]

The program, bench/python/shares.py, measures the CPU time of its functions itself, and says which function calls which.
PYTHON runs it under `uu record -r 999` and under `profiling.sampling run -a --mode cpu --collapsed -r 999`, in turn. Of
each profiler's stacks, the Python frames of that program's file are compared with what the program said:

  samples       stacks with a frame of the program, and their number per CPU second of the program
  off           half the sum of the differences between each function's share of the samples and of the CPU time, in
                percent of all: 0 is exact
  by chance     what independent samples of this number would be off, mostly: half the sum of the mean deviations
  wrong         stacks in which one function stands as the caller of another that it does not call, or whose outermost
                function begins no thread; `partial`: of these, those that lack outer frames only

`between` is the same difference between both profilers: for these functions, and for all functions by the samples in
which they are the leaf, with the one that differs most. Medians over the rounds.
profiling.sampling needs the right to trace the program (root, or ptrace_scope 0)."""

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "python", "shares.py")
RATE = "999"
# Functions at which a thread's stack begins in the program's file.
ROOTS = {"<module>", "thread"}


def ours(line):
    """Frames of a line of uu's folded stacks, outermost first, and its weight: `name (file:line)`, or another frame."""
    stack, _, weight = line.rpartition(" ")
    frames = [re.fullmatch(r"(.*) \((.*?)(:\d+)?\)", frame) for frame in stack.split(";")]
    frames = [(found[1], found[2]) for found in frames if found]
    return [name.rpartition(".")[2] for name, file in frames if file.endswith("shares.py")], int(weight)


def theirs(line):
    """The same of `tid:N;file:function:line;... count`."""
    stack, _, weight = line.rpartition(" ")
    frames = [frame.rsplit(":", 2) for frame in stack.split(";")]
    frames = [frame for frame in frames if len(frame) == 3 and frame[0].endswith("shares.py")]
    return [name.rpartition(".")[2] for _, name, _ in frames], int(weight)


def run(command, result):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(result) as file:
        return json.load(file)


def shares(weights):
    total = sum(weights.values()) or 1
    return {name: weight / total for name, weight in weights.items()}


def difference(one, other):
    return 50 * sum(abs(one.get(name, 0) - other.get(name, 0)) for name in {*one, *other})


def compared(stacks, said):
    """What the stacks of one run are worth, and the shares of their leaf functions."""
    calls, truth = said["calls"], shares(said["spent"])
    found, leaves, wrong, partial = dict.fromkeys(truth, 0), {}, 0, 0
    for frames, weight in stacks:
        if not frames:
            continue
        follows = all(callee in calls.get(caller, ()) for caller, callee in zip(frames, frames[1:]))
        if not follows or frames[0] not in ROOTS:
            wrong += weight
            partial += weight if follows else 0
        for name in truth.keys() & set(frames):
            found[name] += weight
        leaves[frames[-1]] = leaves.get(frames[-1], 0) + weight
    samples = sum(leaves.values())
    counted = sum(found.values()) or 1
    chance = 50 * sum(math.sqrt(2 / math.pi * part * (1 - part) / counted) for part in truth.values())
    return {
        "samples": samples,
        "per second": samples / sum(said["spent"].values()),
        "off": difference(shares(found), truth),
        "chance": chance,
        "wrong": wrong,
        "partial": partial,
        "functions": shares(found),
        "leaves": shares(leaves),
    }


def main():
    uu, python, *rest = sys.argv[1:]
    seconds, rounds = (rest + ["6", "5"][len(rest) :])[:2]
    results = {"uu record": [], "profiling.sampling": []}
    between = []
    with tempfile.TemporaryDirectory() as folder:
        said, recording = os.path.join(folder, "said.json"), os.path.join(folder, "recording.uu")
        folded = os.path.join(folder, "stacks.txt")
        program = [PROGRAM, seconds, said]
        for _ in range(int(rounds)):
            measured = run([uu, "record", "-q", "-r", RATE, "-o", recording, "--", python, *program], said)
            stacks = subprocess.check_output([uu, "report", recording, "-f", "folded"], text=True)
            results["uu record"].append(compared(map(ours, stacks.splitlines()), measured))
            sampling = [python, "-m", "profiling.sampling", "run", "-a", "--mode", "cpu", "--collapsed", "-r", RATE]
            measured = run([*sampling, "-o", folded, *program], said)
            with open(folded, errors="replace") as file:  # names can be damaged
                results["profiling.sampling"].append(compared(map(theirs, file.read().splitlines()), measured))
            last = [rows[-1] for rows in results.values()]
            one, other = (row["leaves"] for row in last)
            between.append((difference(*(row["functions"] for row in last)), difference(one, other)))
            most = max({*one, *other}, key=lambda name: abs(one.get(name, 0) - other.get(name, 0)))
    print("| | samples | a CPU second | off | by chance | wrong | partial |")
    print("|---|---|---|---|---|---|---|")
    for name, rows in results.items():
        numbers = [what for what in rows[0] if what not in ("functions", "leaves")]
        row = {what: statistics.median(row[what] for row in rows) for what in numbers}
        print(
            f"| {name} | {row['samples']:.0f} | {row['per second']:.0f} | {row['off']:.1f} % | {row['chance']:.1f} %"
            f" | {row['wrong']:.0f} | {row['partial']:.0f} |"
        )
    functions, leaves = (statistics.median(column) for column in zip(*between))
    print(f"\nbetween: {functions:.1f} %; leaf functions: {leaves:.1f} %, in the last round mostly `{most}`")


main()
