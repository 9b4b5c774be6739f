"""CPU time of a program that allocates much, sampled by uu, recorded whole by uu and by heaptrack, as ratios to the
same program alone: what the program itself uses, with what the recorders do inside it. Rounds alternate, and each
ratio is of one round; the median, and the least and the largest.

    python3 bench/heap.py target/uu [ROUNDS]
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile

WORK, WORK_OF_ALL = "40", "4"


def used(command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.replace(".", "").replace(" ", "").isdigit())
    return float(line.split()[1])


def main():
    tree, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "heap/heap.cpp")
    uu = [tree + "/bin/uu", "record", "-q", "--names", "later", "--mode", "alloc", "-o", "heap.uu"]
    with tempfile.TemporaryDirectory() as folder:
        program = folder + "/heap"
        subprocess.run(["g++", "-O2", "-g", "-o", program, source], check=True)
        ways = [("uu, one in 512 KiB", [*uu, "--"], WORK), ("uu --all", [*uu, "--all", "--"], WORK_OF_ALL)]
        if shutil.which("heaptrack"):
            ways.append(("heaptrack", ["heaptrack", "-r", "-o", folder + "/track"], WORK_OF_ALL))
        else:
            print("heaptrack is not here")
        ratios = {name: [] for name, *_ in ways}
        for _ in range(rounds):
            for name, command, work in ways:
                alone = used([program, work], folder)
                ratios[name].append(used([*command, program, work], folder) / alone)
    print(f"CPU time of the program, as a ratio to the program alone, {rounds} rounds: median [least-largest]")
    for name, all_of_it in ratios.items():
        print(f"  {name:<20} {statistics.median(all_of_it):6.2f} [{min(all_of_it):.2f}-{max(all_of_it):.2f}]")


main()
