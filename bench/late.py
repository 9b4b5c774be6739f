#!/usr/bin/env python3
"""How long a recorded program waits for the rule table of an object that it loads: from before dlopen(3) until it is in
the recorder's memory, as the program itself finds it there.

  late.py UU [ROUNDS [LOAD]]     ROUNDS [21]; LOAD: processes beside it that keep a CPU busy [4]

Each row alone, and beside the load: the object is opened by its path or searched for by the loader (then a sample must
meet it first, at 99 Hz), and its table is cached or not. Milliseconds are this machine's; medians, and the worst."""

import os
import statistics
import subprocess
import sys
import tempfile

TARGETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/targets/native")
FUNCTIONS = 2000
# Of profiler/ring/src: where the rule tables lie in the memory with the facts (TABLES_OFFSET).
TABLES_OFFSET, ENTRIES = 20 << 20, 4096
BUILD_ID = "4e" * 20


def build(folder):
    """The program, and the bytes of an object with functions that have frames of their own."""
    program, source, lib = (os.path.join(folder, name) for name in ["late_object", "more.c", "late.so"])
    subprocess.run(["gcc", "-O2", "-o", program, os.path.join(TARGETS, "late_object.c")], check=True)
    with open(source, "w") as file:
        file.write("void use(int *at) { *at = 1; }\n")
        for n in range(FUNCTIONS):
            file.write(f"int f{n}(int n) {{ int a[{n % 50 + 1}]; use(a); return a[0] + n; }}\n")
    options = ["-O2", "-shared", "-fPIC", "-fno-inline", f"-Wl,--build-id=0x{BUILD_ID}", "-o", lib]
    subprocess.run(["gcc", *options, os.path.join(TARGETS, "late_object_lib.c"), source], check=True)
    with open(lib, "rb") as file:
        return program, file.read()


def main():
    uu = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 21
    load = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    print("\n### From dlopen to the rule table, ms\n")
    print("| load | object | table | median | worst |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        program, template = build(folder)
        lib, recording = os.path.join(folder, "late.so"), os.path.join(folder, "x.uu")
        environment = dict(os.environ, LD_LIBRARY_PATH=folder, XDG_CACHE_HOME=os.path.join(folder, "cache"))

        def once(words):
            command = [uu, "record", "-q", "-o", recording, "--", program, *words]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{command}: {done.stdout}{done.stderr}")
            return int(done.stdout) / 1e3

        place = ["0", str(TABLES_OFFSET), str(ENTRIES)]
        rows = {"opened by its path": [lib, *place, "works"], "searched for": ["late.so", *place, "works"]}
        number = 0
        for busy in [0, load]:
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                for name, words in rows.items():
                    times = {"not cached": [], "cached": []}
                    for _ in range(rounds):
                        # Another object each time, which the second run finds in the cache.
                        number += 1
                        with open(lib, "wb") as file:
                            file.write(template.replace(bytes.fromhex(BUILD_ID), number.to_bytes(20, "big")))
                        for found in times.values():
                            found.append(once(words))
                    for kind, found in times.items():
                        middle = statistics.median(found)
                        print(f"| {busy} | {name} | {kind} | {middle:.1f} | {max(found):.1f} |", flush=True)
            finally:
                for other in others:
                    other.kill()
                    other.wait()


main()
