"""What captures cost in programs as they are: one inside every N-th malloc(3), by uu_capture, nongnu libunwind's
unw_backtrace and libgcc's backtrace, in turn, in one run. allocations.py TREE [ROUNDS]; TREE: that of ci/build.

Programs: cc1plus (a file with templates), CPython (json, regular expressions, its own parser), and a C++ service with
templates and exceptions (allocations/server.cpp). A program that calls nothing, one that calls uu_handle_faults(), and
one that calls uu_setup() as well are runs of their own, in turn."""

import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = """
import ast, json, re
tree = {str(i): [list(range(i)), {'a': 'b' * i}] for i in range(60)}
for i in range(120):
    text = json.dumps(tree)
    json.loads(text)
    re.sub(r'(\\d+), (\\d+)', r'\\2 \\1', text)
    ast.parse('def f(x):\\n' + '    x = [x, (x, {x: x})]\\n' * 60)
"""
UNWINDERS = ("uu_capture", "unw_backtrace", "libgcc")
MODES = ("nothing", "handled", "prepared")


def build(tree, folder):
    """The preloaded object, and the programs: names and commands."""
    captures, server = os.path.join(folder, "captures.so"), os.path.join(folder, "server")
    library = os.path.join(tree, "lib")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-I" + os.path.join(tree, "include"), "-o", captures,
                    os.path.join(HERE, "allocations/captures.c"), os.path.join(library, "libuunwind.so.0"),
                    "-Wl,-rpath," + library], check=True)
    source = os.path.join(HERE, "allocations/server.cpp")
    subprocess.run(["g++", "-O2", "-std=c++17", "-o", server, source], check=True)
    preprocessed = os.path.join(folder, "server.ii")
    subprocess.run(["g++", "-E", "-std=c++17", "-o", preprocessed, source], check=True)
    cc1plus = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True)
    return captures, {
        "cc1plus": ([cc1plus.stdout.strip(), "-fpreprocessed", "-quiet", "-O2", "-std=c++17", preprocessed, "-o",
                     "/dev/null"], 20),
        "CPython": ([sys.executable, "-c", PYTHON], 20),
        "C++ service": ([server], 20),
    }


def run(captures, command, every, mode, folder):
    """One run: for each unwinder, its numbers."""
    to = os.path.join(folder, "counts")
    # CPython's own allocator takes few allocations to malloc.
    environment = dict(os.environ, LD_PRELOAD=captures, CAPTURES_TO=to, CAPTURES_EVERY=str(every), CAPTURES_MODE=mode,
                       PYTHONMALLOC="malloc")
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    with open(to) as lines:
        rows = {name: list(map(int, numbers)) for name, *numbers in map(str.split, lines)}
    os.remove(to)
    return rows


def main():
    tree, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        captures, programs = build(tree, folder)
        print("| program | called | frames | complete | mean, to unw_backtrace | to libgcc | median, to unw_backtrace |"
              " to libgcc |\n|---|---|---|---|---|---|---|---|")
        for program, (command, every) in programs.items():
            taken = {mode: [] for mode in MODES}
            for _ in range(rounds):
                for mode in MODES:
                    taken[mode].append(run(captures, command, every, mode, folder))
            for mode in MODES:
                def ratio(other, of):
                    return statistics.median(of(rows["uu_capture"]) / of(rows[other]) for rows in taken[mode])

                ours = [rows["uu_capture"] for rows in taken[mode]]
                frames = statistics.median(row[4] / row[0] for row in ours)
                complete = statistics.median(row[5] / row[0] for row in ours)
                figures = [ratio(other, of) for of in (lambda row: row[1] / row[0], lambda row: row[2])
                           for other in ("unw_backtrace", "libgcc")]
                print(f"| {program} | {mode} | {frames:.0f} | {complete:.3f} |",
                      " | ".join(f"{figure:.2f}" for figure in figures), "|", flush=True)


if __name__ == "__main__":
    main()
