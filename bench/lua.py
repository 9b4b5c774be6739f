#!/usr/bin/env python3
"""What it costs to record Lua: one frame beside the floor, and whole programs.

  lua.py UU [frames|programs] [ROUNDS]      both, when none is named

`frames`: lua/frames.lua under `uu record --explicit`: ticks of a sample by the depth of the Lua stack, and of a walk by
frame pointers over as many frames of C, in one process. A frame's cost is the difference of two depths; its ratio is
that of one round.

`programs`: paired runs of the programs in lua/, alone and under `uu record -r 1000`, in turn. A program's CPU time is
its own (user and system), its start included; the recorder's is what the whole tree of processes used, less that (most
of it is the naming of addresses at the end). Under LuaJIT it is checked that recording throws no trace away."""

import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LUAS = [("lua5.4", "lua5.4"), ("luajit", "luajit-2.1")]  # the command, and the folder of its headers
PROGRAMS = ["fannkuch", "nbody", "spectral_norm", "strings", "coroutines", "json"]
RATE = 1000
SECONDS = 0.3  # of one run, about: many short pairs say more than few long ones


def environment(folder):
    return dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"), LUA_INIT="")


def run(command, env):
    """Runs to the end. CPU seconds of the whole tree, and what it said on its two outputs."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, env=env, stdout=out, stderr=errors)  # kept: its end would wait for it
        _, status, usage = os.wait4(child.pid, 0)
        out.seek(0)
        errors.seek(0)
        said, complained = out.read().decode(), errors.read().decode(errors="replace")
    if status != 0:
        sys.exit(f"{command} failed with status {status}:\n{said}{complained}")
    return usage.ru_utime + usage.ru_stime, said, complained


def quartiles(values):
    values = sorted(values)
    return values[len(values) // 4], values[(3 * len(values)) // 4]


# ---- One frame -------------------------------------------------------------------------------------------------------

NEAR, FAR = 120, 320  # depths, as in frames.lua


def frames(uu, rounds):
    print(f"\n### A frame of a stack, by the difference of {FAR} and {NEAR} frames: {rounds} rounds\n")
    print("| | ticks | ratio to frame pointers: median [quartiles] |")
    print("|---|---|---|")
    for lua, headers in LUAS:
        with tempfile.TemporaryDirectory() as folder:
            module = os.path.join(folder, "frames.so")
            source = os.path.join(HERE, "lua/frames.c")
            options = ["-O2", "-fno-omit-frame-pointer", "-shared", "-fPIC", f"-I/usr/include/{headers}"]
            subprocess.run(["gcc", *options, "-o", module, source], check=True)
            env = dict(environment(folder), LUA_CPATH=f"{folder}/?.so", LUA_CPATH_5_4=f"{folder}/?.so")
            record = [uu, "record", "--explicit", "-r", "1", "-o", os.path.join(folder, "x.uu"), "--"]
            _, said, _ = run(record + [lua, os.path.join(HERE, "lua/frames.lua"), str(rounds)], env)
        ticks = {}
        for line in said.splitlines():
            number, what, depth, value = line.split()
            ticks[int(number), what, int(depth)] = float(value)
        slope = lambda number, what: (ticks[number, what, FAR] - ticks[number, what, NEAR]) / (FAR - NEAR)
        names = {
            "floor": "frame pointers (floor)",
            "native": "C frame, beneath Lua",
            "fresh": "Lua frame, another stack each time",
            "same": "Lua frame, the same stack, its innermost function elsewhere",
        }
        for what, name in names.items():
            slopes = [slope(number, what) for number in range(1, rounds + 1)]
            ratios = [slope(number, what) / slope(number, "floor") for number in range(1, rounds + 1)]
            low, high = quartiles(ratios)
            print(
                f"| {lua}: {name} | {statistics.median(slopes):.1f} "
                f"| {statistics.median(ratios):.1f} [{low:.1f}-{high:.1f}] |"
            )


# ---- Whole programs --------------------------------------------------------------------------------------------------


class Run:
    def __init__(self, command, env, result):
        tree, _, self.said = run(command, env)
        with open(result) as file:
            fields = file.read().split()
        self.cpu = float(fields[0])
        self.rest = tree - self.cpu
        self.completed, self.left, self.flushes = map(int, fields[1:])


def programs(uu, rounds):
    print(f"\n### Programs under `uu record -r {RATE}`: {rounds} paired runs each\n")
    print(
        "| | CPU s alone | ratio of the program's CPU: median [quartiles] | samples per CPU s "
        "| recorder's CPU s per s | traces alone, recorded |"
    )
    print("|---|---|---|---|---|---|")
    all_ratios = []
    for lua, _ in LUAS:
        for program in PROGRAMS:
            with tempfile.TemporaryDirectory() as folder:
                all_ratios += pairs(uu, lua, program, rounds, folder)
    print(f"\nall pairs together: median {statistics.median(all_ratios):.4f}")


def pairs(uu, lua, program, rounds, folder):
    result, recording = os.path.join(folder, "result"), os.path.join(folder, "x.uu")
    env = environment(folder)
    plain = lambda times: [lua, os.path.join(HERE, "lua/run.lua"), program, str(times), result]
    times = 1
    while (once := Run(plain(times), env, result).cpu) < SECONDS / 4:
        times *= 2
    times = max(1, round(times * SECONDS / once))
    record = [uu, "record", "-r", str(RATE), "-o", recording, "--"] + plain(times)
    Run(record, env, result)  # fills uu's cache of facts
    alone, recorded = [], []
    for number in range(rounds):
        # Each goes first in half of the pairs: what the first run leaves in caches then affects both.
        for first in (number % 2 == 0, number % 2 == 1):
            (alone if first else recorded).append(Run(plain(times) if first else record, env, result))
    for one in alone + recorded:
        if one.flushes or one.completed != one.left:
            sys.exit(f"{lua} {program}: {one.completed} traces completed, {one.left} left, {one.flushes} flushes")
    samples = subprocess.run(
        [uu, "report", recording, "-f", "samples", "-o", "-"], check=True, capture_output=True, text=True
    )
    count = sum(line.startswith("sample ") for line in samples.stdout.splitlines())
    median = statistics.median
    ratios = [r.cpu / a.cpu for a, r in zip(alone, recorded)]
    low, high = quartiles(ratios)
    traces = f"{median(a.left for a in alone):.0f}, {median(r.left for r in recorded):.0f}" if lua == "luajit" else ""
    cells = [
        f"{median(a.cpu for a in alone):.3f}",
        f"{median(ratios):.4f} [{low:.4f}-{high:.4f}]",
        f"{count / recorded[-1].cpu:.0f}",
        f"{median(r.rest / r.cpu for r in recorded):.4f}",
        traces,
    ]
    print(f"| {lua} {program} | {' | '.join(cells)} |", flush=True)
    return ratios


def settle():
    """Asks for priority; refused without privileges, and then done without."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    except PermissionError:
        pass


def main():
    settle()
    uu = sys.argv[1]
    what = sys.argv[2] if len(sys.argv) > 2 else "all"
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 25
    if what not in ("frames", "programs", "all"):
        sys.exit(f"unknown benchmark '{what}'; there are frames and programs")
    if what != "programs":
        frames(uu, rounds)
    if what != "frames":
        programs(uu, rounds)


if __name__ == "__main__":
    main()
