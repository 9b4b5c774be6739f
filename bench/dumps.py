#!/usr/bin/env python3
"""One look at all threads of bench/dumped.py, by uu dump and by other tools; then one at a core file of it by gcore.

  dumps.py UU PYSPY PYSTACK PYTHON [ROUNDS]

A round runs every tool once on the same process. Printed for each: in how many looks the program's epoll_wait(2) ended
with EINTR; whether its Python functions and its native ones are in the output; the CPU time of the tool, relative to
uu's in the same round, as the median over the rounds. A tool that fails on the process ends the benchmark; one that
fails on the core file is named, and so is gdb where it is not installed. First, uu dump of bench/many_dumped.py, three
times as often: how long the program stood still for it, as uu says: the median, and the longest time."""

import os
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEEP = 41  # calls of the recursion
GDB = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "thread apply all bt"]
PATIENCE = 0.3  # seconds in which an interrupted thread has certainly said so


def look(command):
    """Runs a tool to its end: its output, its CPU time, and whether it says that it succeeded."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )  # kept: its end would wait
        _, status, usage = os.wait4(child.pid, 0)
        said.seek(0)
        return said.read().decode(errors="replace"), usage.ru_utime + usage.ru_stime, status == 0


def interrupted(output):
    """Whether the program has said that its wait was ended since the last call."""
    found = b""
    while select.select([output], [], [], PATIENCE)[0]:
        found += os.read(output, 4096)
    return b"interrupted" in found


def shown(text):
    """Whether the program's Python functions and its native ones are in an output."""
    return text.count("deep") >= DEEP and "through_c" in text, "epoll_wait" in text


def table(seen, title):
    """Prints what each tool has found; of the first tool are the times to which the others' are relative."""
    print(f"{title:30} interrupted  Python  native  CPU time")
    base = next(iter(seen.values()))
    for name, looks in seen.items():
        ended = "" if looks[0][0] is None else f"{sum(was for was, _, _ in looks)} of {len(looks)}"
        found = ["yes" if all(found[at] for _, found, _ in looks) else "no" for at in range(2)]
        ratio = statistics.median(cpu / of for (_, _, cpu), (_, _, of) in zip(looks, base))
        print(f"{name:30} {ended:>11}  {found[0]:>6} {found[1]:>7} {ratio:>9.2f}")


def processes(uu, pyspy, pystack, child, rounds):
    """Looks at the process."""
    tools = {
        "uu dump": [uu, "dump", "-p"],
        "py-spy dump": [pyspy, "dump", "-p"],
        "py-spy dump --native": [pyspy, "dump", "--native", "-p"],
        "pystack remote --native-all": [pystack, "remote", "--native-all"],
    }
    if shutil.which("gdb"):
        tools["gdb, thread apply all bt"] = GDB + ["-p"]
    else:
        print("gdb is not installed")
    output = child.stdout.fileno()
    seen = {name: [] for name in tools}
    for _ in range(rounds):
        for name, command in tools.items():
            text, cpu, is_fine = look(command + [str(child.pid)])
            if not is_fine:
                sys.exit(f"{name} failed:\n{text}")
            seen[name].append((interrupted(output), shown(text), cpu))
    table(seen, "process")


def cores(uu, pyspy, pystack, python, core, rounds):
    """Looks at a core file."""
    tools = {
        "uu dump CORE": [uu, "dump", core],
        "py-spy dump --core": [pyspy, "dump", "--core", core],
        "py-spy dump --native --core": [pyspy, "dump", "--native", "--core", core],
        "pystack core --native-all": [pystack, "core", "--native-all", core, python],
        "gdb, thread apply all bt": GDB + [python, core],
    }
    seen, failed = {name: [] for name in tools}, {}
    for _ in range(rounds):
        for name, command in tools.items():
            text, cpu, is_fine = look(command)
            if not is_fine:
                failed[name] = next(iter(text.strip().splitlines()), "")
            seen[name].append((None, shown(text), cpu))
    table(seen, "core file")
    for name, text in failed.items():
        print(f"{name} failed: {text}")


def stops(uu, python, rounds):
    """How long a program of 100 threads stands still."""
    with subprocess.Popen([python, os.path.join(HERE, "many_dumped.py")], stdout=subprocess.PIPE) as child:
        os.read(child.stdout.fileno(), 6)
        texts = [look([uu, "dump", "-p", str(child.pid)])[0] for _ in range(rounds)]
        child.kill()
    found = [re.search(r"100 threads, stopped for ([0-9.]+) ms", text) for text in texts]
    if not all(found):
        sys.exit(f"uu dump failed:\n{texts[found.index(None)]}")
    times = [float(one[1]) for one in found]
    print(f"100 threads stood still for {statistics.median(times):.1f} ms, at most {max(times):.1f} ({rounds} looks)")


def main():
    uu, pyspy, pystack, python = sys.argv[1:5]
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 10
    python = os.path.realpath(python)
    stops(uu, python, 3 * rounds)
    child = subprocess.Popen([python, os.path.join(HERE, "dumped.py")], stdout=subprocess.PIPE)
    output = child.stdout.fileno()
    os.read(output, 6)
    interrupted(output)
    try:
        processes(uu, pyspy, pystack, child, rounds)
        if not shutil.which("gcore"):
            return print("gcore is not installed")
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "core")
            said, _, is_fine = look(["gcore", "-o", place, str(child.pid)])
            if not is_fine:
                sys.exit(f"gcore failed:\n{said}")
            cores(uu, pyspy, pystack, python, f"{place}.{child.pid}", rounds)
    finally:
        child.kill()
        child.wait()


main()
