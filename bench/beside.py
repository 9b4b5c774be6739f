#!/usr/bin/env python3
"""One Python program beside other profilers, in interleaved pairs: own CPU, the program's CPU, samples, failures, size.

  beside.py UU PYTHON [ROUNDS [WORK]]

Of perf, py-spy, austin and samply those are tried that are on PATH; the others, and those that refuse to record here, are
named. In each round every profiler's run stands beside one without a profiler, first or second in turn. `own CPU` is what all
processes of the command used, less what the program says of itself. A failed sample is one that the profiler itself counts
as an error, or whose stack does not reach the root of its thread. Printed are medians over the rounds, of ratios within
one pair."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Functions at which stacks of threads begin, in glibc.
ROOTS = ("_start", "clone", "clone3", "__clone", "__clone3", "start_thread")


class Refused(Exception):
    pass


def run(command, environment, cpu_file):
    """CPU seconds of the program, of all processes, and what was said."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if status != 0 or not os.path.exists(cpu_file):
        lines = [line for line in text.splitlines() if line.strip()] or ["status %d" % status]
        raise Refused(lines[-1].strip())
    with open(cpu_file) as file:
        target = float(file.read())
    os.remove(cpu_file)
    return target, usage.ru_utime + usage.ru_stime, text


def numbers(pattern, text):
    found = re.search(pattern, text)
    if not found:
        raise Refused("its output has no %r:\n%s" % (pattern, text[-1000:]))
    return [int(group or 0) for group in found.groups()]


def uu_samples(uu, recording, _):
    out = subprocess.run([uu, "report", recording, "-f", "samples"], check=True, capture_output=True, text=True).stdout
    lines = [line for line in out.splitlines() if line.startswith("sample ")]
    return len(lines), sum(" complete " not in line for line in lines)


def perf_samples(recording, _):
    out = subprocess.run(["perf", "script", "-i", recording, "-F", "comm,ip,sym"], check=True, capture_output=True, text=True).stdout
    stacks = [block.strip().splitlines()[1:] for block in out.split("\n\n") if block.strip()]
    roots = [stack[-1].split()[-1] if stack else "" for stack in stacks]
    return len(stacks), sum(root.split("@")[0] not in ROOTS for root in roots)


def spy_samples(text):
    samples, errors = numbers(r"Samples: (\d+)(?: Errors: (\d+))?", text)
    return samples, errors


def austin_samples(recording, text):
    errors = re.search(r"rror rate[ .:]*(\d+)/(\d+)", text)
    with open(recording) as file:
        lines = sum(1 for line in file if line.startswith("P") and ";" in line)
    return lines, int(errors[1]) if errors else 0


def cases(uu, program, folder):
    at = lambda name: os.path.join(folder, name)
    found = {
        "uu 99 Hz": ([uu, "record", "-q", "-r", "99", "-o", at("a.uu"), "--"] + program, at("a.uu"), lambda t: uu_samples(uu, at("a.uu"), t)),
        "uu 999 Hz": ([uu, "record", "-q", "-r", "999", "-o", at("b.uu"), "--"] + program, at("b.uu"), lambda t: uu_samples(uu, at("b.uu"), t)),
    }
    for name, tool, options, output, count in (
        ("perf -g 999 Hz", "perf", ["record", "-e", "cpu-clock", "-F", "999", "-g", "-o", at("fp.data"), "--"], at("fp.data"), perf_samples),
        ("perf dwarf 999 Hz", "perf", ["record", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf", "-o", at("d.data"), "--"], at("d.data"), perf_samples),
        ("py-spy 100 Hz", "py-spy", ["record", "-r", "100", "-f", "raw", "-o", at("s.txt"), "--"], at("s.txt"), lambda _, t: spy_samples(t)),
        ("py-spy --native 100 Hz", "py-spy", ["record", "-r", "100", "--native", "-f", "raw", "-o", at("n.txt"), "--"], at("n.txt"), lambda _, t: spy_samples(t)),
        ("austin 10 ms", "austin", ["-i", "10ms", "-o", at("a.austin")], at("a.austin"), austin_samples),
        ("samply 999 Hz", "samply", ["record", "--save-only", "-r", "999", "-o", at("s.json"), "--"], at("s.json"), lambda *_: (0, 0)),
    ):
        path = shutil.which(tool)
        if path is None:
            print("skipped: %s: %s is not on PATH" % (name, tool))
        else:
            found[name] = ([path] + options + program, output, lambda t, count=count, output=output: count(output, t))
    return found


def main():
    uu, python = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    work = sys.argv[4] if len(sys.argv) > 4 else "100000"
    with tempfile.TemporaryDirectory() as folder:
        cpu = os.path.join(folder, "cpu")
        program = [python, os.path.join(HERE, "workload.py"), work, cpu]
        environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"), PYTHONDONTWRITEBYTECODE="1")
        rows = []
        run(program, environment, cpu)
        for name, (command, output, count) in cases(uu, program, folder).items():
            try:
                run(command, environment, cpu)  # warms up the disk, and what profilers keep of earlier runs
                pairs = []
                for number in range(rounds):
                    alone = None
                    if number % 2 == 0:
                        alone = run(program, environment, cpu)
                    target, tree, text = run(command, environment, cpu)
                    alone = alone or run(program, environment, cpu)
                    samples, failed = count(text)
                    pairs.append((tree - target, target / alone[0], samples / target, samples, failed, os.path.getsize(output)))
                rows.append((name, pairs))
            except (Refused, OSError, subprocess.CalledProcessError) as error:
                print("skipped: %s: %s" % (name, error))
    print("\n### A Python program beside other profilers: %d pairs each, load average %.1f at the end\n" % (rounds, os.getloadavg()[0]))
    print("| | own CPU s a run | program's CPU, ratio: median [least-greatest] | samples per CPU s | failed samples | output KiB |")
    print("|---|---|---|---|---|---|")
    for name, pairs in rows:
        column = lambda n: [pair[n] for pair in pairs]
        ratios = column(1)
        print(
            "| %s | %.2f | %.2f [%.2f-%.2f] | %.0f | %d of %d | %.0f |"
            % (
                name,
                statistics.median(column(0)),
                statistics.median(ratios),
                min(ratios),
                max(ratios),
                statistics.median(column(2)),
                sum(column(4)),
                sum(column(3)),
                statistics.median(column(5)) / 1024,
            )
        )


if __name__ == "__main__":
    main()
