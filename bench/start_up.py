#!/usr/bin/env python3
"""What recording adds to a program that does nothing: CPU time (user and system, exit included) and page faults, from
start to end.

  start_up.py TREE [COUNT]     TREE: the folder with bin/ and lib/

Each program is started COUNT times in turn: alone, with the preloaded object and not recording, and recorded at 1,000
Hz, as a child of a recorded process. LuaJIT is also started by `uu record` itself, COUNT / 4 times: what counts is what
it says it has used. CPython that works for 10 ms is run to its end by `uu record`, with its summary and with --names
later, COUNT / 8 times: time and CPU time, of uu and all its helpers. The added figure is the median of the
differences of one round, the ratio that of the medians."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

RATE = 1000


def programs():
    """Those of them that are here, with what makes them do nothing. No shims: those are programs of their own."""
    found = {
        "true": shutil.which("true"),
        "luajit": shutil.which("luajit"),
        "python3": os.path.realpath(sys.executable),
    }
    arguments = {"true": [], "luajit": ["-e", ""], "python3": ["-c", ""]}
    return {name: [path] + arguments[name] for name, path in found.items() if path}


def spawn(command, environment):
    """CPU in us, and page faults that needed no disk."""
    _, status, usage = os.wait4(os.posix_spawn(command[0], command, environment), 0)
    if status != 0:
        sys.exit(f"{command} failed with status {status}")
    return (usage.ru_utime + usage.ru_stime) * 1e6, usage.ru_minflt


def inner(count, out):
    """Runs under `uu record`; what is started with another environment is not recorded."""
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("UU_")}
    environments = [plain, dict(plain, LD_PRELOAD=os.environ["LD_PRELOAD"]), dict(os.environ)]
    rounds = {
        name: [[spawn(command, e) for e in environments] for _ in range(count)] for name, command in programs().items()
    }
    with open(out, "w") as file:
        json.dump(rounds, file)


def row(program, what, rounds, number):
    alone, other = [r[0] for r in rounds], [r[number] for r in rounds]
    cpu = lambda runs: statistics.median(run[0] for run in runs)
    faults = statistics.median(o[1] - a[1] for a, o in zip(alone, other))
    added = statistics.median(o[0] - a[0] for a, o in zip(alone, other))
    print(
        f"| {program}, {what} | {cpu(alone):.0f} | {added:+.0f} | {cpu(other) / cpu(alone):.2f} | {faults:+.0f} |",
        flush=True,
    )


def started_by_uu(record, count, folder):
    """LuaJIT, started by uu itself or alone: rounds of what it says it has used, its end not included."""
    out = os.path.join(folder, "cpu")
    command = [programs()["luajit"][0], "-e", f"io.open('{out}', 'w'):write(os.clock())"]

    def once(before):
        # uu says that it took no sample, and so does its exit code.
        subprocess.run(before + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(out) as file:
            cpu = float(file.read()) * 1e6
        os.remove(out)
        return cpu, 0

    return [[once([]), once(record)] for _ in range(count)]


def whole(uu, count, folder):
    """What `uu record` adds to a program of 10 ms, from its own start to its end, tables cached: ms."""
    work = "import time\nend = time.process_time() + 0.01\nwhile time.process_time() < end: pass"
    program = [os.path.realpath(sys.executable), "-c", work]
    record = [uu, "record", "-r", str(RATE), "-o", os.path.join(folder, "y.uu")]
    kinds = [program, record + ["--"] + program, record + ["--names", "later", "--"] + program]

    def once(command):
        begun = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(child.pid, 0)
        return (time.monotonic() - begun) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3

    [once(command) for command in kinds]
    rounds = [[once(command) for command in kinds] for _ in range(count)]
    print("\n| CPython, 10 ms | time added, ms | CPU time added, ms |\n|---|---|---|")
    for at, what in [(1, "recorded, with a summary"), (2, "recorded, `--names later`")]:
        added = [statistics.median(r[at][kind] - r[0][kind] for r in rounds) for kind in (0, 1)]
        print(f"| {what} | {added[0]:.1f} | {added[1]:.1f} |", flush=True)


def main():
    tree = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 400
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    except PermissionError:
        pass  # a busy machine then costs precision
    print(f"\n### Start and end of a program that does nothing, CPU us, {count} rounds\n")
    print("| | alone | added | ratio | page faults added |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "rounds")
        record = [os.path.join(tree, "bin/uu"), "record", "-r", str(RATE), "-o", os.path.join(folder, "x.uu"), "--"]
        command = record + [os.path.realpath(sys.executable), os.path.abspath(__file__), "--inner", str(count), out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"uu failed:\n{done.stdout}{done.stderr}")
        with open(out) as file:
            for program, rounds in json.load(file).items():
                row(program, "preloaded, not recording", rounds, 1)
                row(program, "recorded", rounds, 2)
        if "luajit" in programs():
            row("luajit", "started by uu itself, until its end", started_by_uu(record, count // 4, folder), 1)
        whole(os.path.join(tree, "bin/uu"), max(count // 8, 1), folder)


if __name__ == "__main__":
    if sys.argv[1] == "--inner":
        inner(int(sys.argv[2]), sys.argv[3])
    else:
        main()
