#!/usr/bin/env python3
"""What a profiler costs the program that it profiles: paired runs of bench/workload.py, alone and under uu and py-spy.

  end_to_end.py UU PYSPY PYTHON [ROUNDS [WORK]]

A round runs the program alone and under each profiler, in turn. The program measures its own CPU time; the profiler's
is what the whole tree of processes used, less that. A ratio is that of one round; printed are the medians over the
rounds."""

import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RATE = 1000


class Run:
    def __init__(self, target, tree, samples):
        self.target = target  # CPU seconds of the program
        self.profiler = tree - target  # CPU seconds of all other processes
        self.samples = samples  # samples delivered


def run(command, environment, cpu_file, count):
    """Runs the command to its end. `count` gets its output and returns the number of samples."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, env=environment, stdout=said, stderr=said)  # kept: its end would wait for it
        _, status, usage = os.wait4(child.pid, 0)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if status != 0:
        sys.exit(f"{command} failed with status {status}:\n{text}")
    with open(cpu_file) as file:
        target = float(file.read())
    return Run(target, usage.ru_utime + usage.ru_stime, count(text))


def uu_samples(uu, recording):
    """Counts the samples of a recording by its text report: not what uu says of itself, but what can be read back."""
    out = subprocess.run(
        [uu, "report", recording, "-f", "samples", "-o", "-"], check=True, capture_output=True, text=True
    )
    return sum(line.startswith("sample ") for line in out.stdout.splitlines())


def pyspy_samples(text):
    found = re.search(r"Samples: (\d+)(?: Errors: (\d+))?", text)
    if not found:
        sys.exit(f"py-spy did not say how many samples it took:\n{text}")
    return int(found[1]) - int(found[2] or 0)


def main():
    uu, pyspy, python = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    work = sys.argv[5] if len(sys.argv) > 5 else "100000"
    with tempfile.TemporaryDirectory() as folder:
        cpu = os.path.join(folder, "cpu")
        recording = os.path.join(folder, "x.uu")
        program = [python, os.path.join(HERE, "workload.py"), work, cpu]
        spy = [pyspy, "record", "-r", str(RATE), "-f", "raw", "-o", os.path.join(folder, "x.txt")]
        cases = {
            "alone": (program, lambda _: 0),
            f"uu, {RATE} Hz asked": (
                [uu, "record", "-r", str(RATE), "-o", recording, "--"] + program,
                lambda _: uu_samples(uu, recording),
            ),
            f"py-spy, {RATE} Hz": (spy + ["--"] + program, pyspy_samples),
            f"py-spy --native, {RATE} Hz": (spy + ["--native", "--"] + program, pyspy_samples),
        }
        environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"), PYTHONDONTWRITEBYTECODE="1")
        runs = {name: [] for name in cases}
        for number in range(rounds + 1):
            for name, (command, count) in cases.items():
                done = run(command, environment, cpu, count)
                if number > 0:  # the first round warms up the disk and uu's cache of facts
                    runs[name].append(done)
    report(runs, rounds)


def report(runs, rounds):
    print(f"\n### A Python program under profilers: {rounds} paired rounds\n")
    print(
        "| | program's CPU s | ratio to alone: median [least-greatest] | samples per CPU s "
        "| profiler's CPU s per s | us per sample |"
    )
    print("|---|---|---|---|---|---|")
    alone = runs["alone"]
    for name, mine in runs.items():
        median = lambda f: statistics.median(f(a, m) for a, m in zip(alone, mine))
        ratios = [m.target / a.target for a, m in zip(alone, mine)]
        cells = [
            f"{median(lambda a, m: m.target):.3f}",
            f"{statistics.median(ratios):.3f} [{min(ratios):.3f}-{max(ratios):.3f}]",
        ]
        if name == "alone":
            cells += ["", "", ""]
        else:
            cells.append(f"{median(lambda a, m: m.samples / m.target):.0f}")
            cells.append(f"{median(lambda a, m: m.profiler / m.target):.4f}")
            extra = median(lambda a, m: (m.target - a.target + m.profiler) / max(m.samples, 1))
            cells.append(f"{extra * 1e6:.1f}")
        print(f"| {name} | {' | '.join(cells)} |")
    print("\nus per sample: CPU time added to the program, and the profiler's own, over the samples delivered.")


if __name__ == "__main__":
    main()
