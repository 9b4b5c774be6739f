#!/usr/bin/env python3
"""What uu_setup() costs a program, in a new process each time, and what captures cost after it.

    bench/set_up.py [LIBRARY] [ROUNDS]

CPython with its usual objects: medians of CPU time, as ratios to the interpreter's own start: with an empty cache, from
the cache, and called again where nothing new was loaded. In milliseconds, too, which are this machine's.

A program with 5, 100 and 1,000 objects of FUNCTIONS functions each, all different: CPU time for each object. It is
linear if the rows are the same.

Captures of 2,000 chains of generated functions with handled faults, before uu_setup() and after it, in one process: the
ratio of the minima, of ROUNDS processes.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile

CALLS = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
started = time.process_time()
for _ in range(2):
    before = time.process_time()
    assert library.uu_setup() > 0
    print(time.process_time() - before)
print(started)
"""


FUNCTIONS = 20
BUILD_ID = "4e" * 20
OPENS = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uu.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
int main(int count, char **words) {
    char path[4096];
    for (int i = 0; i < atoi(words[2]); i++) {
        snprintf(path, sizeof path, "%s/lib%d.so", words[1], i);
        if (!dlopen(path, RTLD_NOW)) return 1;
    }
    double begun = now();
    if (uu_setup() < atoi(words[2])) return 2;
    printf("%f\\n", now() - begun);
}
"""
CHAINS = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uu.h>
typedef int (*function)(int, unsigned);
extern const function functions[];
static uint64_t frames[512];
static int leaf(void) { return uu_capture(frames, 512, 0, 0) > 0; }
#define NEXT(n) (d == 0 ? leaf() : functions[(s = s * 1103515245u + 12345u, (s >> 8) % COUNT)](d - 1, s ^ n))
FUNCTIONS
const function functions[COUNT] = {NAMES};
static double chains(void) {
    struct timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (unsigned i = 0; i < 2000; i++) functions[i * 7919u % COUNT](30, i * 2654435761u);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
}
static double least(void) {
    double found = 1e18;
    for (int i = 0; i < 44; i++) { double time = chains(); if (i > 2 && time < found) found = time; }
    return found;
}
int main(void) {
    if (uu_handle_faults()) return 1;
    double before = least();
    if (uu_setup() < 0) return 2;
    printf("%f\\n", least() / before);
}
"""


def functions(count):
    """3 % have frames of variable size, 2 % are realigned. Each calls at four places."""
    numbers = random.Random(1)
    for n in range(count):
        kind = numbers.random()
        if kind < 0.03:
            begin = "volatile char v[d + s % 64 + 1];"
        elif kind < 0.05:
            begin = "__attribute__((aligned(64))) volatile char v[64];"
        else:
            begin = f"volatile long v[{numbers.randrange(1, 20)}];"
        number = numbers.randrange
        calls = "".join(f"t == {at} ? NEXT({number(1000)}) * {number(2, 9)} : " for at in range(4))
        body = f"{begin} unsigned t = (s >> 3) % 4; v[0] = 1; int x = {calls}0; return x + v[0];"
        yield f"__attribute__((noinline)) static int f{n}(int d, unsigned s) {{ {body} }}"


def compiled(folder, name, text, library, *options):
    source, out = os.path.join(folder, name + ".c"), os.path.join(folder, name)
    with open(source, "w") as file:
        file.write(text)
    where = os.path.dirname(library)
    include = os.path.join(where, "../include")
    linked = [] if "-shared" in options else [f"-I{include}", library, f"-Wl,-rpath,{where}"]
    subprocess.run(["gcc", "-O1", "-g", "-fomit-frame-pointer", "-o", out, source, *options, *linked], check=True)
    return out


def number(command, environment):
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def objects(folder, library, rounds):
    program = compiled(folder, "opens", OPENS, library)
    text = "\n".join(f"int f{n}(int n) {{ volatile int v[{n + 1}]; v[0] = n; return v[0]; }}" for n in range(FUNCTIONS))
    template = compiled(folder, "template.so", text, library, "-shared", "-fPIC", f"-Wl,--build-id=0x{BUILD_ID}")
    with open(template, "rb") as file:
        template = file.read()
    for n in range(1000):
        with open(os.path.join(folder, f"lib{n}.so"), "wb") as file:
            file.write(template.replace(bytes.fromhex(BUILD_ID), (n + 1).to_bytes(20, "big")))
    print("\n| objects | uu_setup(), empty cache, ms | from the cache, ms"
          " | an object, empty cache, ms | from the cache, ms |")
    print("|---|---|---|---|---|")
    for count in [5, 100, 1000]:
        found = [], []
        for n in range(rounds):
            # Not the same folder again: a file system may take long to use again what it has just deleted.
            cache = os.path.join(folder, f"cache-{count}-{n}")
            environment = dict(os.environ, XDG_CACHE_HOME=cache)
            for times in found:
                times.append(number([program, folder, str(count)], environment))
        empty, cached = (statistics.median(times) for times in found)
        print(f"| {count} | {empty:.1f} | {cached:.1f} | {empty / count:.3f} | {cached / count:.3f} |", flush=True)


def later(folder, library, rounds):
    count = 1500
    text = CHAINS.replace("FUNCTIONS", "\n".join(functions(count))).replace("COUNT", str(count))
    program = compiled(folder, "chains", text.replace("NAMES", ", ".join(f"f{n}" for n in range(count))), library)
    found = sorted(number([program], dict(os.environ)) for _ in range(rounds))
    median, least, greatest = statistics.median(found), found[0], found[-1]
    print(f"\ncaptures after uu_setup(), to those before: {median:.2f} ({least:.2f} to {greatest:.2f})")


def main():
    library = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/uu/lib/libuunwind.so.0")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    found = {"empty cache": [], "from the cache": [], "again": []}
    starts = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for kind in ["empty cache", "from the cache"]:
                environment = dict(os.environ, XDG_CACHE_HOME=cache)
                call = [sys.executable, "-c", CALLS, library]
                out = subprocess.run(call, env=environment, check=True, capture_output=True, text=True).stdout
                first, again, started = map(float, out.split())
                found[kind].append(first)
                found["again"].append(again)
                starts.append(started)
    start = statistics.median(starts)
    print(f"the interpreter's own start: {start * 1e3:.1f} ms")
    for kind, times in found.items():
        middle = statistics.median(times)
        print(f"uu_setup(), {kind}: {middle / start:.3f} of it, {middle * 1e3:.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        objects(folder, library, rounds)
        later(folder, library, rounds)


main()
