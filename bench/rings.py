#!/usr/bin/env python3
"""What a sample costs: bytes in its thread's ring, and in the recording.

  rings.py UU [PYTHON...]     UU: the command uu; PYTHON: interpreters [default: the one that runs this]

Records programs of several kinds, and reads from the recording what the recorder has counted. The ratio is that to
eight bytes a frame; the recording's bytes are those of its samples and stacks, without names. At 999 Hz: rates change
how alike neighbours are."""

import os
import struct
import subprocess
import sys
import tempfile

RATE = 999
SECONDS = 2.0

HEAD = f"""
import sys, time
end = time.process_time() + {SECONDS}
def running(): return time.process_time() < end
"""

PROGRAMS = {
    "one loop": """
def work():
    while running():
        for i in range(10000): x = i * i
work()
""",
    "many functions": """
import json, re, collections
text = json.dumps([{"name": f"n{i}", "values": list(range(i % 20)), "text": "x y z " * (i % 7)} for i in range(300)])
word = re.compile(r"(\\w+)\\s+(\\w)")
class Tree:
    def __init__(self, depth): self.sons = [Tree(depth - 1) for _ in range(3)] if depth else []
    def count(self): return 1 + sum(son.count() for son in self.sons)
def parse(): return json.loads(text)
def match(data): return sum(len(word.findall(d["text"])) for d in data)
def sort(data): return sorted(data, key=lambda d: (len(d["values"]), d["name"]))
def group(data):
    groups = collections.defaultdict(list)
    for d in data: groups[len(d["values"])].append(d)
    return {k: [d["name"].upper() for d in v] for k, v in groups.items()}
while running():
    data = parse(); match(data); sort(data); group(data); Tree(5).count(); json.dumps(data, indent=1)
""",
    "recursion, 20 deep": """
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
while running(): fib(20)
""",
    "walks at 300 deep": """
sys.setrecursionlimit(5000)
def leaf(n): return sum(i ^ n for i in range(50))
def down(n):
    if n: return down(n - 1)
    while running():
        for i in range(30): leaf(i)
down(300)
""",
    "recursion, 0 to 900 deep": """
sys.setrecursionlimit(5000)
def down(n): return 0 if n == 0 else 1 + down(n - 1) + sum(range(30))
while running(): down(900)
""",
    "compiler": """
import ast, inspect, argparse, collections
source = inspect.getsource(argparse) + inspect.getsource(collections)
while running(): compile(ast.parse(source), "x", "exec")
""",
    "threads": """
import threading
def work(n):
    def inner(k): return [str(i * k) for i in range(100)]
    while running(): inner(n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
""",
}
# Place of what is counted in a Counters section: Counters in profiler/recording/src/totals.rs.
FRAMES, BYTES = 11, 15
NODES, SAMPLES, COUNTERS = 7, 8, 10


def sections(data):
    """Kind and payload of each section: docs/recording-format.md."""
    at = 16
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        yield kind, data[at + 8 : at + 8 + size]
        at += size + 12


def measured(uu, python, program, folder):
    out = os.path.join(folder, "x.uu")
    command = [uu, "record", "-q", "-r", str(RATE), "-o", out, "--", python, "-c", HEAD + program]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    frames = ring = samples = file = 0
    with open(out, "rb") as recording:
        for kind, payload in sections(recording.read()):
            if kind == COUNTERS:
                values = struct.unpack_from(f"<{struct.unpack_from('<I', payload, 4)[0]}Q", payload, 8)
                frames, ring = frames + values[FRAMES], ring + values[BYTES]
            elif kind in (NODES, SAMPLES):
                file += len(payload) + 12
                samples += struct.unpack_from("<I", payload)[0] if kind == SAMPLES else 0
    os.remove(out)
    return samples, frames / samples, ring / samples, file / samples


def main():
    uu = sys.argv[1]
    pythons = sys.argv[2:] or [os.path.realpath(sys.executable)]
    print("\n### Bytes of a sample\n")
    print(
        "| | samples | frames | bytes in the ring | to 8 a frame | bytes in the recording |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for python in pythons:
            for name, program in PROGRAMS.items():
                samples, frames, ring, file = measured(uu, python, program, folder)
                print(
                    f"| {os.path.basename(python)}, {name} | {samples} | {frames:.1f} | {ring:.1f} "
                    f"| {ring / frames / 8:.2f} | {file:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
