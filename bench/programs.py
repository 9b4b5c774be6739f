#!/usr/bin/env python3
"""Real Python programs: are the stacks that profilers see of them whole, and do they agree with the program's calls?

  programs.py UU PYTHON FOLDER [--only NAME,...] [--tools NAME,...] [--rate HZ] [--runs N] [--show N]

PYTHON: a CPython of 3.11 or later with venv. FOLDER is kept: the environment with the programs is made there once.

Each program runs once with `sitecustomize.py`, which writes down all of its calls: who calls whom, at which
instruction. Then it runs under each profiler. Every pair of neighbouring Python frames of every sample must be one of
these calls:

* uu says function and instruction of the caller, and function of the callee: `new place` is a pair of functions of
  which one calls the other, but at another instruction; `never called`: it does not at all.
* All others say function and line. A pair of functions, by file and name, of which one never calls the other is
  `wrong`.

Calls of functions that began before the program's calls were written down are `not judged`. A program does not take the
same way twice (when the garbage is collected, what finishes first): a few such pairs are to be looked at, by --show.
`not whole`: the profiler itself says so, or the stack's first Python frame is no beginning of a thread."""

import argparse
import collections
import os
import pickle
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = "black mypy pytest hypothesis sphinx flask django numpy pandas gevent nbclient ipykernel py-spy".split()
PACKAGES.append("austin-dist==3.7.0")
# Functions with which a thread of Python code begins, besides modules.
BEGINNINGS = {"<module>", "_bootstrap", "_run_module_as_main"}


def programs(python, folder):
    library = os.path.join(folder, "library")
    documents = os.path.join(folder, "documents")
    script = lambda name: [python, os.path.join(HERE, "programs", name)]
    return {
        "black": [python, "-m", "black", "-q", "--fast", "-W", "1", "--check", library],
        "mypy": [
            python,
            "-m",
            "mypy",
            "--cache-dir=/dev/null",
            "--follow-imports=silent",
            os.path.join(library, "argparse.py"),
        ],
        "pytest": [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "numpy.polynomial"],
        "sphinx": [python, "-m", "sphinx", "-q", "-E", "-b", "html", documents, os.path.join(folder, "html")],
        "flask": script("flask_client.py"),
        "django": script("django_client.py"),
        "tables": script("tables.py"),
        "asyncio": script("asyncio_server.py"),
        "gevent": script("gevent_server.py"),
        "kernel": script("kernel.py"),
    }


def prepare(plain, folder):
    """The environment, and what the programs work on."""
    python = os.path.join(folder, "environment", "bin", "python3")
    if not os.path.exists(os.path.join(folder, "ready")):
        subprocess.run([plain, "-m", "venv", os.path.join(folder, "environment")], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        open(os.path.join(folder, "ready"), "w").close()
    ask = "import sysconfig, flask, os; print(sysconfig.get_path('stdlib')); print(os.path.dirname(flask.__file__))"
    library, flask = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    for name in ("library", "documents"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        os.makedirs(os.path.join(folder, name))
    for name in "argparse ast asyncore bdb calendar configparser".split():
        if os.path.exists(os.path.join(library, name + ".py")):
            shutil.copy(os.path.join(library, name + ".py"), os.path.join(folder, "library"))
    with open(os.path.join(folder, "library", "pyproject.toml"), "w") as file:
        file.write("[tool.black]\nline-length = 79\n")
    with open(os.path.join(folder, "documents", "conf.py"), "w") as file:
        file.write("extensions = ['sphinx.ext.autodoc', 'sphinx.ext.viewcode']\n")
    with open(os.path.join(folder, "documents", "index.rst"), "w") as file:
        modules = [name[:-3] for name in sorted(os.listdir(flask)) if name.endswith(".py") and not name.startswith("_")]
        file.write(
            "Flask\n=====\n\n"
            + "".join(".. automodule:: flask.%s\n   :members:\n   :undoc-members:\n\n" % name for name in modules)
        )
    return python


def run(command, folder, **environment):
    """CPU seconds of all its processes, wall seconds, and what was said."""
    clean = dict(os.environ, PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1", **environment)
    # pytest ends with 1 if a test fails, black --check if it would change a file.
    with open(os.path.join(folder, "said"), "w+b") as said:
        begin = time.monotonic()
        child = subprocess.Popen(command, env=clean, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - begin
        said.seek(0)
        text = said.read().decode(errors="replace")
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise OSError("%s: status %d: %s" % (command, status, text[-2000:]))
    return usage.ru_utime + usage.ru_stime, wall, text


def calls(command, folder):
    """All calls of the program."""
    place = os.path.join(folder, "calls")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    run(command, folder, CALL_GRAPH=place, PYTHONPATH=os.path.join(HERE, "programs"))
    found = set()
    for name in os.listdir(place):
        with open(os.path.join(place, name), "rb") as file:
            found |= pickle.load(file)
    return {(plain(caller), position, plain(callee)) for caller, position, callee in found}


def plain(function):
    """A function as it is named in each run: a notebook's cells lie in a file with the process's number."""
    return (re.sub(r"ipykernel_\d+", "ipykernel", function[0]), *function[1:])


class Verdict:
    def __init__(self):
        self.samples = self.cut = self.pairs = self.unseen = 0
        self.example = ""
        self.reasons = collections.Counter()
        self.new_place = collections.Counter()
        self.never = collections.Counter()
        self.wrong_samples = 0

    def add(self, other):
        for name in "samples cut pairs unseen wrong_samples".split():
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in "reasons new_place never".split():
            getattr(self, name).update(getattr(other, name))
        self.example = self.example or other.example


FRAME = re.compile(r"  (?:py|await) (.*) \((.*):\d+(?::[-:0-9]+)?\) code 0x[0-9a-f]+ pos (\d+) first (\d+)$")


def judge_uu(text, known):
    """`text`: the samples as `uu report -f samples` prints them."""
    exact = known
    pairs = {(caller, callee) for caller, _, callee in known}
    seen = {function for caller, _, callee in known for function in (caller, callee)}
    verdict = Verdict()
    for sample in text.split("\nsample "):
        lines = sample.splitlines()
        verdict.samples += 1
        stop = re.search(r" stop \d+ (.*?) flags (\S+)", lines[0])
        if not stop[1].startswith("complete"):
            verdict.cut += 1
            verdict.reasons[stop[1]] += 1
            verdict.example = verdict.example or sample
        frames = []
        for line in lines[1:]:
            found = FRAME.match(line)
            if found:
                frames.append((plain((found[2], int(found[4]), found[1])), int(found[3])))
        bad = False
        for (callee, _), (caller, position) in zip(frames, frames[1:]):
            verdict.pairs += 1
            if (caller, position, callee) in exact:
                continue
            if (caller, callee) in pairs:
                verdict.new_place[(caller, position, callee)] += 1
            elif caller not in seen:
                verdict.unseen += 1
            else:
                bad = True
                verdict.never[(caller, position, callee)] += 1
        verdict.wrong_samples += bad
    return verdict


SPY = re.compile(r"^(.*) \((.*):(\d+)\)$")


def judge_lines(stacks, known):
    """`stacks`: lists of (function, file), outermost first, each with its number of samples."""
    last = lambda name: name.rsplit(".", 1)[-1]
    file = lambda path: os.path.basename(path)
    pairs = {((file(a[0]), last(a[2])), (file(b[0]), last(b[2]))) for a, _, b in known}
    seen = {function for pair in pairs for function in pair}
    verdict = Verdict()
    for frames, count in stacks:
        verdict.samples += count
        frames = [(file(path), last(name)) for name, path in frames]
        if frames and frames[0][1] not in BEGINNINGS:
            verdict.cut += count
            verdict.reasons["begins with " + frames[0][1]] += count
        bad = False
        for caller, callee in zip(frames, frames[1:]):
            verdict.pairs += count
            if (caller, callee) in pairs:
                continue
            if caller not in seen:
                verdict.unseen += count
            else:
                bad = True
                verdict.never[(caller, 0, callee)] += count
        verdict.wrong_samples += bad * count
    return verdict


def folded(text, frame, each=None):
    """`each`: the number of samples that a line stands for; without it, its last number."""
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdigit() or line.startswith("#"):
            continue
        yield [found for found in map(frame, stack.split(";")) if found], each or int(count)


def spy_frame(text):
    found = SPY.match(text)
    # Native frames have files of other languages, or none.
    return (found[1], found[2]) if found and (found[2].endswith(".py") or found[2].startswith("<")) else None


def by_uu(uu, command, folder, rate, known):
    file = os.path.join(folder, "x.uu")
    # Its programs' Python frames are compared, so that nothing may be hidden.
    cpu, wall, _ = run([uu, "record", "-q", "-r", str(rate), "-o", file, "--", *command], folder)
    text = subprocess.run([uu, "report", file, "-f", "samples"], check=True, capture_output=True, text=True).stdout
    return cpu, wall, 0, judge_uu(text[len("sample ") :], known)


def by_spy(options):
    def record(tool, command, folder, rate, known):
        file = os.path.join(folder, "x.spy")
        cpu, wall, text = run(
            [tool, "record", *options, "-s", "-r", str(rate), "-f", "raw", "-o", file, "--", *command], folder
        )
        errors = re.search(r"Errors: (\d+)", text)
        with open(file) as out:
            return cpu, wall, int(errors[1]) if errors else 0, judge_lines(folded(out.read(), spy_frame), known)

    return record


def austin_frame(text):
    found = re.match(r"(.*):([^:]*):\d+$", text)
    return (found[2], found[1]) if found and (found[1].endswith(".py") or found[1].startswith("<")) else None


def by_austin(options):
    def record(tool, command, folder, rate, known):
        file = os.path.join(folder, "x.austin")
        cpu, wall, text = run(
            [tool, "-s", "-C", *options, "-i", "%dus" % (1_000_000 // rate), "-o", file, *command], folder
        )
        errors = re.search(r"rror rate\D*(\d+)/\d+", re.sub(r"\x1b\[[0-9;]*m", "", text))
        with open(file) as out:
            # Those that austin itself marks are counted as failed.
            lines = "\n".join(line for line in out if ":INVALID:" not in line)
        return cpu, wall, int(errors[1]) if errors else 0, judge_lines(folded(lines, austin_frame, 1), known)

    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uu")
    parser.add_argument("python")
    parser.add_argument("folder")
    parser.add_argument("--only")
    parser.add_argument("--tools", default="uu")
    parser.add_argument("--rate", type=int, default=999)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--show", type=int, default=3)
    options = parser.parse_args()
    folder = os.path.abspath(options.folder)
    os.makedirs(folder, exist_ok=True)
    python = prepare(options.python, folder)
    beside = lambda name: os.path.join(os.path.dirname(python), name)
    spy = beside("py-spy")
    tools = {
        "uu": lambda *rest: by_uu(os.path.abspath(options.uu), *rest),
        "py-spy": lambda *rest: by_spy([])(spy, *rest),
        "austin": lambda *rest: by_austin([])(beside("austin"), *rest),
        "austinp": lambda *rest: by_austin(["-k"])(beside("austinp"), *rest),
        "py-spy --native": lambda *rest: by_spy(["--native"])(spy, *rest),
    }
    print(
        "| program | profiler | CPU s alone | CPU s of all | samples | not whole | failed | pairs | not judged "
        "| new place | never called | wrong samples |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, command in programs(python, folder).items():
        if options.only and name not in options.only.split(","):
            continue
        known = calls(command, folder)
        alone = run(command, folder)[0]
        for tool in options.tools.split(","):
            cpu, failed, verdict = 0, 0, Verdict()
            try:
                for _ in range(options.runs):
                    spent, _, errors, one = tools[tool](command, folder, options.rate, known)
                    cpu, failed = cpu + spent / options.runs, failed + errors
                    verdict.add(one)
            except (OSError, subprocess.CalledProcessError) as error:
                print("| %s | %s | refused: %s" % (name, tool, str(error)[-300:]))
                continue
            row = (
                verdict.samples,
                verdict.cut,
                failed,
                verdict.pairs,
                verdict.unseen,
                sum(verdict.new_place.values()),
                sum(verdict.never.values()),
                verdict.wrong_samples,
            )
            print(
                "| %s | %s | %.1f | %.1f | " % (name, tool, alone, cpu) + " | ".join(map(str, row)) + " |", flush=True
            )
            for reason, count in verdict.reasons.most_common(options.show):
                print("  not whole: %d: %s" % (count, reason), file=sys.stderr)
            if verdict.example and options.show:
                print("  the first that is not whole:\n" + verdict.example, file=sys.stderr)
            for kind, found in (("new place", verdict.new_place), ("never called", verdict.never)):
                for pair, count in found.most_common(options.show):
                    print("  %s: %d: %s" % (kind, count, pair), file=sys.stderr)


if __name__ == "__main__":
    main()
