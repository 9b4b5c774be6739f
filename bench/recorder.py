#!/usr/bin/env python3
"""What the recorder itself uses while it records: CPU time of the process `uu`, by its own clock, all its threads
together.

  recorder.py UU [SECONDS [ROUNDS]]     SECONDS: of work that are measured [5]; ROUNDS [3]

A program works on four threads, or waits on them. From half a second after its begin until just before its end, the CPU
clock of `uu` is read: what comes before and after, the analysis of files and the naming of functions, is not in it. The
samples are those of the same time, and the periods those that they stand for: a tick may stand for several. How many
there are says how much the threads ran: with fewer CPUs than threads, or on a loaded machine, not all the time. A part
of the recorder's work does not depend on their number, so the share is no multiple of that of one sample. The last row
is a program whose threads do nothing. Medians."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

THREADS = 4
NATIVE = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned sink;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static double end;
__attribute__((noinline)) static unsigned leaf(unsigned n) { for (int i = 0; i < 200; i++) sink += n ^ i; return n; }
__attribute__((noinline)) static unsigned down(unsigned n, unsigned way) {
    return n == 0 ? leaf(way) : way >> n & 1 ? down(n - 1, way) + 1 : down(n - 1, way) * 3;
}
static void *works(void *wait) {
    for (unsigned way = 0; now() < end; way++)
        if (wait) usleep(strcmp(wait, "nothing") ? 2000 : 3000000); else down(20, way);
    return 0;
}
int main(int count, char **words) {
    pthread_t threads[THREADS];
    end = now() + atof(words[1]);
    puts("begun"); fflush(stdout);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, works, count > 2 ? words[2] : 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
}
"""
PYTHON = """
import json, re, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
print("begun", flush=True)
data = [{"name": f"n{i}", "values": list(range(i % 20))} for i in range(50)]
def parse(): return json.loads(json.dumps(data, indent=1))
def match(text): return len(re.findall(r"[0-9]+", text))
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def works():
    while time.monotonic() < end: match(str(parse())); fib(12)
threads = [threading.Thread(target=works) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
MODES = {
    "native": [
        *(["-r", "1000"], ["--kernel", "-r", "1000"], ["-r", "2000"], ["-r", "4999"]),
        ["--mode", "wall", "-r", "1000"],
    ],
    "native, waits of 2 ms": [["--mode", "wall", "-r", "99"], ["--mode", "wall", "-r", "1000"]],
    "native, does nothing": [["-r", "99"]],
    "CPython": [["-r", "1000"], ["--kernel", "-r", "1000"], ["--mode", "wall", "-r", "1000"]],
}


def used(pid):
    """CPU seconds of a process, those of threads that have ended included (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def measured(uu, options, command, seconds, recording):
    """Seconds, CPU seconds of the recorder in them, samples, and periods that they stand for."""
    record = [uu, "record", *options, "-o", recording, "--", *command, str(seconds + 1.5)]
    child = subprocess.Popen(record, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if child.stdout.readline() != b"begun\n":
        sys.exit(child.communicate()[1].decode())
    time.sleep(0.5)
    begin, cpu = time.time_ns(), used(child.pid)
    time.sleep(seconds)
    end, cpu = time.time_ns(), used(child.pid) - cpu
    said = child.communicate()[1].decode()
    if child.returncode:
        sys.exit(said)
    # Then the timers of the threads have sampled, at the kernel's tick.
    if "no perf events (" in said and ("--kernel" in options or "4999" in options):
        sys.exit(f"{' '.join(options)}: {said}")
    if not os.path.exists(recording):
        # Nothing was sampled.
        return (end - begin) / 1e9, cpu, 0, 0
    report = json.loads(
        subprocess.run([uu, "report", recording, "-f", "json", "-i"], check=True, capture_output=True).stdout
    )
    weights = [sample["weight"] for sample in report["samples"] if begin <= report["start"] + sample["time"] < end]
    return (end - begin) / 1e9, cpu, len(weights), sum(weights)


def main():
    uu = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    print("\n### The recorder's own CPU time, four threads\n")
    print("| program | options | samples a second | periods a second | share of a CPU |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source, program, recording = (os.path.join(folder, name) for name in ("work.c", "work", "x.uu"))
        with open(source, "w") as file:
            file.write(NATIVE)
        subprocess.run(["gcc", "-O1", "-g", "-pthread", f"-DTHREADS={THREADS}", "-o", program, source], check=True)
        script = os.path.join(folder, "work.py")
        with open(script, "w") as file:
            file.write(PYTHON)
        programs = {name: [program] for name in MODES} | {"CPython": ["/usr/bin/python3", script]}
        for name, modes in MODES.items():
            for options in modes:
                found = []
                for _ in range(rounds):
                    command = programs[name]
                    if "," in name:
                        # The first word is the time.
                        what = "nothing" if "nothing" in name else "waits"
                        command = ["/bin/sh", "-c", f'exec "$0" "$1" {what}', program]
                    found.append(measured(uu, options, command, seconds, recording))
                per_second = lambda at: statistics.median(one[at] / one[0] for one in found)
                samples, periods, share = per_second(2), per_second(3), per_second(1) * 100
                print(f"| {name} | `{' '.join(options)}` | {samples:.0f} | {periods:.0f} | {share:.3f} % |", flush=True)


main()
