#!/usr/bin/env python3
"""One look at all threads of bench/dumped.py, by uu dump and by other tools.

  dumps.py UU PYSPY PYSTACK PYTHON [ROUNDS]

A round runs every tool once on the same process. Printed for each: in how many looks the program's epoll_wait(2) ended
with EINTR; whether its Python functions and its native ones are in the output; the CPU time of the tool, relative to
uu's in the same round, as the median over the rounds. A tool that fails, or gdb where it is not installed, is named."""

import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEEP = 41  # calls of the recursion
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


def main():
    uu, pyspy, pystack, python = sys.argv[1:5]
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 10
    tools = {
        "uu dump": [uu, "dump", "-p"],
        "py-spy dump": [pyspy, "dump", "-p"],
        "py-spy dump --native": [pyspy, "dump", "--native", "-p"],
        "pystack remote --native-all": [pystack, "remote", "--native-all"],
    }
    if shutil.which("gdb"):
        gdb = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "thread apply all bt", "-p"]
        tools["gdb, thread apply all bt"] = gdb
    else:
        print("gdb is not installed")
    child = subprocess.Popen([python, os.path.join(HERE, "dumped.py")], stdout=subprocess.PIPE)
    output = child.stdout.fileno()
    os.read(output, 6)
    interrupted(output)
    seen = {name: [] for name in tools}
    for _ in range(rounds):
        for name, command in tools.items():
            text, cpu, is_fine = look(command + [str(child.pid)])
            if not is_fine:
                sys.exit(f"{name} failed:\n{text}")
            shown = (text.count("deep") >= DEEP and "through_c" in text, "epoll_wait" in text)
            seen[name].append((interrupted(output), shown, cpu))
    child.kill()
    child.wait()
    print(f"{'tool':30} interrupted  Python  native  CPU time")
    for name, looks in seen.items():
        ended = sum(was for was, _, _ in looks)
        shown = ["yes" if all(shown[at] for _, shown, _ in looks) else "no" for at in range(2)]
        ratio = statistics.median(cpu / base for (_, _, cpu), (_, _, base) in zip(looks, seen["uu dump"]))
        print(f"{name:30} {ended:>5} of {rounds:<3} {shown[0]:>6} {shown[1]:>7} {ratio:>9.2f}")


main()
