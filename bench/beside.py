#!/usr/bin/env python3
"""Real programs beside other profilers, in interleaved pairs: own CPU, the program's CPU, samples, failures, size.

  beside.py UU PYTHON [ROUNDS [PROGRAM...]]

PYTHON: with the packages of the programs, which are left out otherwise. PROGRAM: as in the function `programs`; all of
them if none is named. Of perf, py-spy, austin and samply those are tried that are on PATH; the others, and those that
refuse to record here, are named. In each round every profiler's run stands beside one without a profiler, first or
second in turn. The program's CPU is measured in the program: a preloaded library writes it down at its end. `own CPU`
is what all processes of the command used, less that. A failed sample is one that the profiler itself counts as an
error, or whose stack does not reach the root of its thread; "?" where the profiler's file has no names. Printed are
medians over the rounds, of ratios within one pair. samply wants kernel.perf_event_paranoid to be 1 at most."""

import gzip
import json
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


# Writes the CPU seconds of the process whose program has the name $CPU_PROGRAM to the file $CPU_FILE.
MEASURE = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
__attribute__((destructor)) static void measure(void) {
    const char *program = getenv("CPU_PROGRAM"), *file = getenv("CPU_FILE");
    struct rusage use;
    if (!program || !file || strcmp(program, program_invocation_short_name) || getrusage(RUSAGE_SELF, &use)) return;
    FILE *out = fopen(file, "w");
    if (!out) return;
    double parts = (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
    fprintf(out, "%.6f", use.ru_utime.tv_sec + use.ru_stime.tv_sec + parts);
    fclose(out);
}
"""
QUERY = """with recursive c(x) as (select 1 union all select x + 1 from c limit 1500000)
select sum(x * x % 7), count(distinct x % 1000), max(printf('%08d', x)) from c;"""
LUA = "local function f(n) if n < 2 then return n end return f(n - 1) + f(n - 2) end print(f(39))"


class Refused(Exception):
    pass


def programs(python):
    """Name: command, and the module of Python that it needs, None for programs that are none of Python."""
    script = lambda name: [python, os.path.join(HERE, "programs", name)]
    return {
        "loops": ([python, os.path.join(HERE, "workload.py"), "100000", os.devnull], "sys"),
        "pytest": ([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "numpy.polynomial"], "pytest"),
        "flask": (script("flask_client.py"), "flask"),
        "django": (script("django_client.py"), "django"),
        "pandas": (script("tables.py"), "pandas"),
        "sqlite3": (["sqlite3", ":memory:", QUERY], None),
        "luajit": (["luajit", "-e", LUA], None),
    }


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
    out = subprocess.run(
        ["perf", "script", "-i", recording, "-F", "comm,ip,sym"], check=True, capture_output=True, text=True
    ).stdout
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


def samply_samples(recording, _):
    with open(recording, "rb") as file:
        packed = file.read()
    profile = json.loads(gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed)
    # Its stacks are addresses without names.
    return sum(thread["samples"]["length"] for thread in profile["threads"]), None


def cases(uu, program, folder, is_python):
    at = lambda name: os.path.join(folder, name)
    found = {
        "uu 99 Hz": (
            [uu, "record", "-q", "-r", "99", "-o", at("a.uu"), "--"] + program,
            at("a.uu"),
            lambda t: uu_samples(uu, at("a.uu"), t),
        ),
        "uu 999 Hz": (
            [uu, "record", "-q", "-r", "999", "-o", at("b.uu"), "--"] + program,
            at("b.uu"),
            lambda t: uu_samples(uu, at("b.uu"), t),
        ),
    }
    for name, tool, options, output, count in (
        (
            "perf -g 999 Hz",
            "perf",
            ["record", "-e", "cpu-clock", "-F", "999", "-g", "-o", at("fp.data"), "--"],
            at("fp.data"),
            perf_samples,
        ),
        (
            "perf dwarf 999 Hz",
            "perf",
            ["record", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf", "-o", at("d.data"), "--"],
            at("d.data"),
            perf_samples,
        ),
        (
            "py-spy 100 Hz",
            "py-spy",
            ["record", "-r", "100", "-f", "raw", "-o", at("s.txt"), "--"],
            at("s.txt"),
            lambda _, t: spy_samples(t),
        ),
        (
            "py-spy --native 100 Hz",
            "py-spy",
            ["record", "-r", "100", "--native", "-f", "raw", "-o", at("n.txt"), "--"],
            at("n.txt"),
            lambda _, t: spy_samples(t),
        ),
        ("austin 10 ms", "austin", ["-i", "10ms", "-o", at("a.austin")], at("a.austin"), austin_samples),
        (
            "samply 999 Hz",
            "samply",
            ["record", "--save-only", "-r", "999", "-o", at("s.json"), "--"],
            at("s.json"),
            samply_samples,
        ),
    ):
        path = shutil.which(tool)
        if tool in ("py-spy", "austin") and not is_python:
            continue
        if path is None:
            print("skipped: %s: %s is not on PATH" % (name, tool))
        else:
            found[name] = ([path] + options + program, output, lambda t, count=count, output=output: count(output, t))
    return found


def measured(uu, name, program, is_python, rounds, folder):
    """Prints the table of one program."""
    cpu = os.path.join(folder, "cpu")
    library = os.path.join(folder, "measure.so")
    environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"), PYTHONDONTWRITEBYTECODE="1")
    # The name that the kernel and libc have is of what is executed, without its folder.
    environment.update(LD_PRELOAD=library, CPU_PROGRAM=os.path.basename(program[0]), CPU_FILE=cpu)
    rows = []
    run(program, environment, cpu)
    for profiler, (command, output, count) in cases(uu, program, folder, is_python).items():
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
                pairs.append(
                    (tree - target, target / alone[0], samples / target, samples, failed, os.path.getsize(output))
                )
            rows.append((profiler, pairs))
        except (Refused, OSError, subprocess.CalledProcessError) as error:
            print("skipped: %s: %s" % (profiler, error))
    print(
        "\n### %s beside profilers: %d pairs each, load average %.1f at the end\n" % (name, rounds, os.getloadavg()[0])
    )
    print(
        "| | own CPU s a run | program's CPU, ratio: median [least-greatest] "
        "| samples per CPU s | failed samples | output KiB |"
    )
    print("|---|---|---|---|---|---|")
    for profiler, pairs in rows:
        own, ratios, rate, samples, failed, size = zip(*pairs)
        ratio = "%.2f [%.2f-%.2f]" % (statistics.median(ratios), min(ratios), max(ratios))
        lost = "?" if None in failed else sum(failed)
        shown = (profiler, statistics.median(own), ratio, statistics.median(rate), lost, sum(samples))
        print("| %s | %.2f | %s | %.0f | %s of %d | %.0f |" % (*shown, statistics.median(size) / 1024), flush=True)


def main():
    uu, python = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    known = programs(python)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "measure.c")
        with open(source, "w") as file:
            file.write(MEASURE)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", os.path.join(folder, "measure.so"), source], check=True)
        for name in sys.argv[4:] or known:
            if name not in known:
                sys.exit("no program %r; there are: %s" % (name, ", ".join(known)))
            program, module = known[name]
            if shutil.which(program[0]) is None:
                print("skipped: %s: no %s" % (name, program[0]))
            elif (
                module and subprocess.run([python, "-c", "import " + module], stderr=subprocess.DEVNULL).returncode != 0
            ):
                print("skipped: %s: %s has no module %s" % (name, python, module))
            else:
                try:
                    measured(uu, name, program, module is not None, rounds, folder)
                except Refused as error:
                    print("skipped: %s: %s" % (name, error))


if __name__ == "__main__":
    main()
