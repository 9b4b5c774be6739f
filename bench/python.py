#!/usr/bin/env python3
"""What it costs to record Python: one frame beside the floor, a sample, many threads, and a start with many imports.

  python.py UU PYTHON [frames|rate|threads|imports] [ROUNDS]      all, when none is named

`frames`: python/frames.py under `uu record --explicit`: ticks of a sample by the depth of the Python stack, and of a
walk by frame pointers over as many frames of C, in one process. A frame's cost is the difference of two depths; its
ratio is that of one round. From the whole sample, its signal included, follows what share of a CPU 1,000 samples a
second take.

`rate`: bench/workload.py alone and under `uu record -r 1000`, in turn: ratio of the program's own CPU time.

`threads`: python/threads.py, alone and recorded: 1,000 threads that work and sleep.

`imports`: a program that imports 300 modules, alone and recorded, in turn: ratio of its CPU time."""

import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NEAR, FAR = 60, 260
MODULES = 300


def quartiles(values):
    values = sorted(values)
    return values[len(values) // 4], values[(3 * len(values)) // 4]


def cells(values, digits=2):
    low, high = quartiles(values)
    return "%.*f [%.*f-%.*f]" % (digits, statistics.median(values), digits, low, digits, high)


def hertz():
    """Ticks of the time stamp counter in a second."""
    with open("/proc/cpuinfo") as file:
        return next(float(line.split(":")[1]) * 1e6 for line in file if line.startswith("cpu MHz"))


def run(command, environment):
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, env=environment, stdout=said, stderr=said)  # kept: its end would wait for it
        _, status, usage = os.wait4(child.pid, 0)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if status != 0:
        sys.exit("%s failed with status %d:\n%s" % (command, status, text))
    return usage.ru_utime + usage.ru_stime, text


def frames(uu, python, rounds, folder, environment):
    module = os.path.join(folder, "frames.so")
    options = ["-O2", "-fno-omit-frame-pointer", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, "-o", module, os.path.join(HERE, "python/frames.c")], check=True)
    record = [uu, "record", "-q", "--explicit", "-r", "1", "-o", os.path.join(folder, "x.uu"), "--"]
    program = [python, os.path.join(HERE, "python/frames.py"), module, str(rounds), str(NEAR), str(FAR)]
    _, text = run(record + program, environment)
    ticks = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[1] in ("fresh", "same", "floor"):
            ticks[int(fields[0]), fields[1], int(fields[2])] = float(fields[3])
    slope = lambda number, what: (ticks[number, what, FAR] - ticks[number, what, NEAR]) / (FAR - NEAR)
    print("\n### A frame of a stack, by the difference of %d and %d frames: %d rounds\n" % (FAR, NEAR, rounds))
    print("| | ns | ratio to frame pointers: median [quartiles] |")
    print("|---|---|---|")
    names = {
        "floor": "frame pointers (floor)",
        "fresh": "Python frame, another stack each time",
        "same": "Python frame, the same stack",
    }
    numbers = range(1, rounds + 1)
    for what, name in names.items():
        ns = statistics.median(slope(number, what) for number in numbers) / hertz() * 1e9
        print(
            "| %s | %.2f | %s |"
            % (name, ns, cells([slope(number, what) / slope(number, "floor") for number in numbers]))
        )
    for what in ("fresh", "same"):
        whole = statistics.median(ticks[number, what, NEAR] for number in numbers) / hertz()
        print(
            "a sample of %d Python frames, %s, its signal included: %.1f us; 1,000 a second: %.2f %% of a CPU"
            % (NEAR, what, whole * 1e6, whole * 1e5)
        )


def pairs(plain, record, rounds, environment, result):
    """Ratios of the program's own CPU time. Each goes first in half of the pairs."""
    ratios = []
    for number in range(rounds):
        once = {}
        for first in (number % 2 == 0, number % 2 == 1):
            run(plain if first else record + plain, environment)
            with open(result) as file:
                once[first] = [float(word) for word in file.read().split()]
        ratios.append([recorded / alone for alone, recorded in zip(once[True], once[False])])
    return ratios


def rate(uu, python, rounds, folder, environment):
    result = os.path.join(folder, "cpu")
    record = [uu, "record", "-q", "-r", "1000", "-o", os.path.join(folder, "x.uu"), "--"]
    plain = [python, os.path.join(HERE, "workload.py"), "8000", result]
    run(record + plain, environment)
    ratios = [pair[0] for pair in pairs(plain, record, rounds, environment, result)]
    print(
        "\n### workload.py under `uu record -r 1000`: %d pairs\n\nratio of its CPU time: %s"
        % (rounds, cells(ratios, 3))
    )


def threads(uu, python, rounds, folder, environment):
    result = os.path.join(folder, "cpu")
    recording = os.path.join(folder, "x.uu")
    record = [uu, "record", "-q", "-r", "999", "-o", recording, "--"]
    plain = [python, os.path.join(HERE, "python/threads.py"), result]
    run(record + plain, environment)
    found = pairs(plain, record, max(rounds // 5, 1), environment, result)
    text = subprocess.run([uu, "report", recording, "-f", "samples"], check=True, capture_output=True, text=True).stdout
    samples = [line.split() for line in text.splitlines() if line.startswith("sample ")]
    whole = sum("complete" in line for line in samples)
    print("\n### 1,000 Python threads under `uu record -r 999`: %d pairs\n" % len(found))
    print(
        "ratio of its CPU time %s, of the longest nap %s, of the median nap %s"
        % tuple(cells([pair[n] for pair in found]) for n in range(3))
    )
    print("%d samples of %d threads, %d whole" % (len(samples), len({line[5] for line in samples}), whole))


def imports(uu, python, rounds, folder, environment):
    package = os.path.join(folder, "package")
    os.makedirs(package)
    standard = "json argparse logging dataclasses enum typing re functools collections pathlib".split()
    for number in range(MODULES):
        with open(os.path.join(package, "m%d.py" % number), "w") as file:
            file.write("import %s, %s\n" % (standard[number % 10], standard[(number // 10) % 10]))
            for cls in range(4):
                file.write("class C%d:\n    'A class.'\n" % cls)
                file.write(
                    "".join(
                        "    def method%d(self, a, b=1):\n        return [a + i for i in range(b)]\n" % m
                        for m in range(8)
                    )
                )
    result = os.path.join(folder, "cpu")
    with open(os.path.join(folder, "cli.py"), "w") as file:
        file.write("import resource, sys\n" + "".join("import package.m%d\n" % number for number in range(MODULES)))
        file.write(
            "used = resource.getrusage(resource.RUSAGE_SELF)\n"
            "open(sys.argv[1], 'w').write(str(used.ru_utime + used.ru_stime))\n"
        )
    plain = [python, os.path.join(folder, "cli.py"), result]
    record = [uu, "record", "-q", "-r", "1000", "-o", os.path.join(folder, "x.uu"), "--"]
    # Compiles the modules, and fills uu's caches.
    run(record + plain, environment)
    ratios = [pair[0] for pair in pairs(plain, record, rounds, environment, result)]
    print(
        "\n### A start with %d modules, recorded at 1,000 Hz: %d pairs\n\nratio of its CPU time: %s"
        % (MODULES, rounds, cells(ratios, 3))
    )


def main():
    uu, python = map(os.path.abspath, sys.argv[1:3])
    every = {"frames": frames, "rate": rate, "threads": threads, "imports": imports}
    what = [sys.argv[3]] if len(sys.argv) > 3 and sys.argv[3] in every else list(every)
    rounds = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 25
    for name in what:
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"))
            every[name](uu, python, rounds, folder, environment)


if __name__ == "__main__":
    main()
