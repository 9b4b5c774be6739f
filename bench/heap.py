"""CPU time of programs that allocate much, sampled by uu, recorded whole by uu and by heaptrack and memray, as ratios
to the same program alone: what the program itself uses, with what the recorders do inside it. Rounds alternate, and
each ratio is of one round; the median, and the least and the largest.

    python3 bench/heap.py target/uu [ROUNDS]

memray is used if this Python has it.
"""

import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

PLACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "heap")


def used(command, cwd):
    # memray overwrites no file.
    for name in ("track.zst", "memray.bin"):
        if os.path.exists(os.path.join(cwd, name)):
            os.remove(os.path.join(cwd, name))
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.replace(".", "").replace(" ", "").isdigit())
    return float(line.split()[1])


def native(uu, folder):
    """A program of C++: its name, the command without the work, and the ways to record it with the work of each."""
    program = folder + "/heap"
    subprocess.run(["g++", "-O2", "-g", "-o", program, PLACE + "/heap.cpp"], check=True)
    ways = [("uu, one in 512 KiB", [*uu, "--"], "40"), ("uu --all", [*uu, "--all", "--"], "4")]
    if shutil.which("heaptrack"):
        ways.append(("heaptrack", ["heaptrack", "-r", "-o", folder + "/track"], "4"))
    else:
        print("heaptrack is not here")
    return "C++", [program], ways


def python(uu, folder):
    """The same of a program of Python."""
    ways = [
        ("uu, one in 512 KiB", [*uu, "--"], "10"),
        ("uu --all", [*uu, "--all", "--"], "5"),
        ("uu --all --python-malloc", [*uu, "--all", "--python-malloc", "--"], "2"),
    ]
    if importlib.util.find_spec("memray"):
        memray = [sys.executable, "-m", "memray", "run", "-q", "-o", folder + "/memray.bin"]
        ways += [
            ("memray", memray, "5"),
            ("memray --native", [*memray, "--native"], "5"),
            ("the same with --trace-python-allocators", [*memray, "--native", "--trace-python-allocators"], "2"),
        ]
    else:
        print("memray is not here: pip install memray")
    return "Python", [sys.executable, PLACE + "/heap.py"], ways


def main():
    tree, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    uu = [tree + "/bin/uu", "record", "-q", "--names", "later", "--mode", "alloc", "-o", "heap.uu"]
    print(f"CPU time of the program, as a ratio to the program alone, {rounds} rounds: median [least-largest]")
    for make in (native, python):
        with tempfile.TemporaryDirectory() as folder:
            name, program, ways = make(uu, folder)
            ratios = {way: [] for way, *_ in ways}
            for _ in range(rounds):
                for way, command, work in ways:
                    # memray starts the interpreter itself.
                    what = program[1:] if "memray" in command else program
                    alone = used([*program, work], folder)
                    ratios[way].append(used([*command, *what, work], folder) / alone)
        print(name)
        for way, all_of_it in ratios.items():
            print(f"  {way:<40} {statistics.median(all_of_it):6.2f} [{min(all_of_it):.2f}-{max(all_of_it):.2f}]")


main()
