"""Tests of `uu` inside an emulated AArch64 machine, which ci/aarch64 --system starts: a line each, `passed NAME`,
`failed NAME: why` or `skipped NAME: why`. Stacks are compared with the call graph of tests/aarch64/targets/graph.c.
"""

import os
import re
import resource
import subprocess
import sys
import time

# Which functions call each function, as the source has it. `None`: nobody does, or libc.
CALLS = {
    "leaf": {"twig", "dynamic", "many", "registers"},
    "twig": {"large", "dynamic", "deep", "registers", "in_handler"},
    "large": {"work"},
    "dynamic": {"work"},
    "many": {"work"},
    "deep": {"work", "deep"},
    "registers": {"work"},
    "in_handler": {"handler"},
    "handler": {"work"},
    "work": {"main", None},
    "crash": {"before_crash"},
    "before_crash": {"main"},
    "main": {None},
    "_start": {None},
}
# The same of tests/aarch64/targets/graph.py.
PYTHON_CALLS = {
    "leaf": {"by_key", "deep", "generator"},
    "by_key": {"in_sort"},
    "in_sort": {"work"},
    "deep": {"work", "deep"},
    "generator": {"summed"},
    "summed": {"work"},
    "work": {"main", "Thread.run"},
    "main": {"<module>"},
}
# Functions of the C library's start files, which are linked into the program.
OF_STARTFILES = {"__do_global_dtors_aux", "deregister_tm_clones", "register_tm_clones", "frame_dummy", "call_weak_fn",
                 "_init", "_fini"}
# Deepest recursion of `deep`.
DEEPEST = 31
# Longest time that a command may take: what hangs ends, and the machine is slow.
PATIENCE = 300


class Failed(Exception):
    """A test has failed, for this reason."""


def need(condition, why):
    """Fails the test unless the condition holds."""
    if not condition:
        raise Failed(why)


def run(*command, **others):
    """Runs a command; its result, with both outputs as text."""
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **others)


def samples(text):
    """The samples of a report: each a pair of its head's words and its frames (kind, name, object), leaf first."""
    found = []
    for block in text.split("\n\n"):
        lines = block.strip("\n").split("\n")
        head = next((line for line in lines if line.startswith("sample ")), None)
        if head is None:
            continue
        frames = []
        for line in lines[lines.index(head) + 1 :]:
            match = re.match(r"  (\S+) (.*?)(?:\+0x[0-9a-f]+)? \((.*?)\)", line)
            frames.append(match.groups() if match else (line.split()[0], "?", ""))
        found.append((head.split(), frames))
    return found


def fault_of(frames, program):
    """What is wrong with a complete stack of the program; `None`: nothing."""
    # Stubs of the procedure linkage table have no names here.
    own = [name for kind, name, path in frames if kind == "native" and path == program and name != "?"]
    own = [name for name in own if name not in OF_STARTFILES]
    for callee, caller in zip(own, own[1:]):
        if caller not in CALLS.get(callee, ()) and callee != "main":
            return f"{callee} is called by {caller}"
    deep = [name for name in own if name == "deep"]
    if len(deep) > DEEPEST:
        return f"{len(deep)} frames of deep"
    # The loader, libc or uu itself, before and after the program's functions.
    if not own:
        return None
    last = own[-1]
    if last not in ("_start", "work"):
        return f"its outermost frame of the program is {last}"
    # Without one, it is on the way to main, or has come back from it.
    if last == "_start" and "main" not in own and own != ["_start"]:
        return "it has no main"
    return None


def record(variant, *options):
    """Records a variant of the program; its path, and the samples."""
    program, result = f"/test/graph-{variant}", f"/tmp/{variant}.txt"
    done = run("uu", "record", *options, "--no-keep", "-f", "samples", "-o", result, "--", program, "3", "3")
    need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1500:]}")
    need(done.stdout.startswith("done"), f"the program has not printed its result: {done.stdout[-200:]!r}")
    with open(result, encoding="utf-8", errors="replace") as file:
        return program, samples(file.read())


def stacks_of(variant, least_complete, *options):
    """Records a variant; all complete stacks must be possible, and this part of all must be complete."""
    program, found = record(variant, *options)
    need(len(found) >= 100, f"{len(found)} samples")
    wrong, complete, reasons = [], 0, {}
    for head, frames in found:
        stop = head[head.index("stop") + 1]
        reasons[stop] = reasons.get(stop, 0) + 1
        if "complete" not in head:
            continue
        complete += 1
        fault = fault_of(frames, program)
        if fault:
            wrong.append((fault, [frame[1] for frame in frames]))
    seen = {name for _, frames in found for _, name, path in frames if path == program}
    missing = {"leaf", "twig", "large", "dynamic", "many", "deep", "registers", "main", "work"} - seen
    print(f"# {variant}: {len(found)} samples, {complete} complete, {len(wrong)} of them wrong; stops {reasons}")
    need(not wrong, f"{len(wrong)} stacks are marked complete and impossible, such as {wrong[:3]}")
    need(not missing, f"functions without a sample: {missing}")
    need(complete >= least_complete * len(found), f"{complete} of {len(found)} are complete; stops {reasons}")


def test_plain():
    """Unwind tables, no frame pointers."""
    stacks_of("plain", 0.99, "-r", "499")


def test_signed():
    """Signed return addresses and landing pads."""
    stacks_of("signed", 0.99, "-r", "499")


def test_pointers():
    """Frame pointers and no unwind tables: the program's own frames are found by frame records."""
    stacks_of("pointers", 0.5, "-r", "499")


def test_unoptimized():
    """-O0."""
    stacks_of("unoptimized", 0.99, "-r", "499")


def test_no_replay():
    """Every stack walked anew."""
    stacks_of("plain", 0.99, "-r", "499", "--no-replay")


def dumped(text):
    """The threads of a dump: each a pair of its head and the names of its frames, leaf first."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line]
        if lines and lines[0].startswith("thread "):
            frames = [line[4:] for line in lines[1:] if line.startswith("    ") and not line.startswith("    [")]
            found.append((lines[0], [frame.rsplit(" (", 1)[0] for frame in frames]))
    return found


def of_program(frames):
    """The frames of a dump that are functions of the program, as those of a sample."""
    return [("native", name, "program") for name in frames if name in CALLS]


def test_dump():
    """Threads of a running process, again and again."""
    with subprocess.Popen(["/test/graph-signed", "900", "3"], stdout=subprocess.DEVNULL) as process:
        try:
            seen = set()
            for _ in range(5):
                done = run("uu", "dump", "-p", str(process.pid))
                need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-800:]}")
                threads = dumped(done.stdout)
                need(len(threads) == 4, f"{len(threads)} threads of 4: {done.stdout[-1500:]}")
                for head, frames in threads:
                    own = of_program(frames)
                    fault = fault_of(own, "program")
                    need(own and not fault, f"{head}: {fault}: {frames}")
                    seen.update(name for _, name, _ in own)
            need(len(seen) >= 4, f"only {seen}")
        finally:
            process.kill()


def test_wall():
    """Threads that wait, beside one that works."""
    result = "/tmp/wall.txt"
    script = "import threading, time; t = threading.Thread(target=time.sleep, args=(3,)); t.start(); t.join()"
    done = run("uu", "record", "--mode", "wall", "--no-keep", "-f", "samples", "-o", result, "--", "python3.11", "-c",
               script)
    need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1500:]}")
    with open(result, encoding="utf-8", errors="replace") as file:
        found = samples(file.read())
    waits = [frames for _, frames in found if any(frame[0] == "waiting" for frame in frames)]
    need(waits, f"no sample of a thread that waits among {len(found)}: {[frames[:3] for _, frames in found][:5]}")


def crash_of(lines):
    """The frames of the named part of a crash report's crashed thread."""
    named = lines[lines.index("with names and lines:") :] if "with names and lines:" in lines else []
    frames = []
    for line in named:
        if line.startswith("    "):
            frames.append(line[4:].rsplit(" (", 1)[0])
        elif frames:
            break
    return frames


def test_crash_report():
    """A crash report names what the crashed thread did."""
    report = "/tmp/crash.txt"
    done = run("uu", "run", "--report-crashes", "-o", report, "--", "/test/graph-signed", "1", "2", "crash")
    need(done.returncode in (-11, 139), f"exit code {done.returncode}: {done.stderr[-800:]}")
    with open(report, encoding="utf-8", errors="replace") as file:
        text = file.read()
    lines = text.split("\n")
    head = next((line for line in lines if "crashed:" in line), "")
    need("complete" in head, f"not complete: {text[-1500:]}")
    frames = [name for name in crash_of(lines) if name in CALLS]
    need(frames == ["crash", "before_crash", "main", "_start"], f"{frames}: {text[-2500:]}")
    need("SIGSEGV" in lines[0] and lines[0].endswith("address 0x8"), lines[0])
    need(any(line.startswith("registers ") and " x0 0x" in line for line in lines), "no registers: " + text[-2500:])


def test_core():
    """A core file of the kernel's, with signed return addresses."""
    os.makedirs("/tmp/cores", exist_ok=True)
    with open("/proc/sys/kernel/core_pattern", "w", encoding="utf-8") as file:
        file.write("/tmp/cores/core")

    def unlimited():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    subprocess.run(["/test/graph-signed", "1", "2", "crash"], preexec_fn=unlimited, check=False, timeout=PATIENCE)
    cores = os.listdir("/tmp/cores")
    need(cores, "the kernel has written no core file")
    done = run("uu", "dump", f"/tmp/cores/{cores[0]}")
    need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1500:]}")
    threads = dumped(done.stdout)
    crashed = [name for name in threads[0][1] if name in CALLS] if threads else []
    said = f"{done.stdout[-2500:]}{done.stderr[-800:]}"
    need(crashed == ["crash", "before_crash", "main", "_start"], f"{crashed}: {said}")
    need("SIGSEGV at address 0x8" in done.stdout and "x0 0x" in done.stdout, done.stdout[-2500:])


def test_from_outside():
    """`uu record -p` records from outside, and says why."""
    with subprocess.Popen(["/test/graph-plain", "900", "2"], stdout=subprocess.DEVNULL) as process:
        try:
            result = "/tmp/outside.txt"
            done = run("uu", "record", "-p", str(process.pid), "-d", "20", "--no-keep", "-f", "samples", "-o", result)
        finally:
            process.kill()
    need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1500:]}")
    need("x86-64 only so far" in done.stderr, f"it does not say why: {done.stderr[-800:]}")
    with open(result, encoding="utf-8", errors="replace") as file:
        found = samples(file.read())
    need(len(found) >= 10, f"{len(found)} samples")
    wrong = [(fault_of(frames, "/test/graph-plain"), frames) for head, frames in found if "complete" in head]
    wrong = [each for each in wrong if each[0]]
    need(wrong == [], f"{len(wrong)} impossible stacks, such as {wrong[:2]}")


def test_python():
    """CPython 3.11: its frames in the native stack, in the order of its calls."""
    result = "/tmp/python.txt"
    done = run("uu", "record", "-r", "499", "--no-keep", "-f", "samples", "-o", result, "--", "python3.11",
               "/test/graph.py", "8")
    need(done.returncode == 0 and done.stdout.startswith("done"), f"{done.returncode}: {done.stderr[-1500:]}")
    with open(result, encoding="utf-8", errors="replace") as file:
        found = samples(file.read())
    wrong, with_frames, doubtful, complete = [], 0, 0, 0
    for head, frames in found:
        names = [name for kind, name, _ in frames if kind == "py"]
        with_frames += "work" in names
        doubtful += "desync" in " ".join(head)
        complete += "complete" in head
        for callee, caller in zip(names, names[1:]):
            if callee in PYTHON_CALLS and caller not in PYTHON_CALLS[callee]:
                wrong.append((callee, caller, names))
    print(f"# python: {len(found)} samples, {complete} complete, {with_frames} with the program's functions, "
          f"{doubtful} doubtful, {len(wrong)} wrong")
    need(len(found) >= 100, f"{len(found)} samples: {done.stderr[-1500:]}")
    need(not wrong, f"{len(wrong)} impossible, such as {wrong[:3]}")
    said = f"{found[-1]}{done.stderr[-2500:]}"
    need(with_frames >= 0.5 * len(found), f"{with_frames} of {len(found)} have the program's functions: {said}")
    need(doubtful <= 0.02 * len(found), f"{doubtful} of {len(found)} are doubtful")


def test_refusals():
    """What is not there for this CPU is refused by name."""
    done = run("uu", "record", "--unwind", "offline", "--", "/test/graph-plain", "1", "1")
    need(done.returncode == 125 and "x86-64 only" in done.stderr, f"{done.returncode}: {done.stderr[-500:]}")


def main():
    """Runs all tests, or those that are named."""
    wanted = sys.argv[1:]
    if not wanted and os.path.exists("/test/only"):
        with open("/test/only", encoding="utf-8") as file:
            wanted = file.read().split()
    for name, test in list(globals().items()):
        if not name.startswith("test_") or wanted and name[5:] not in wanted:
            continue
        begun = time.monotonic()
        try:
            test()
            print(f"passed {name[5:]} ({time.monotonic() - begun:.0f} s)", flush=True)
        except Failed as why:
            print(f"failed {name[5:]}: {why}", flush=True)
        except (subprocess.TimeoutExpired, OSError, ValueError) as why:
            print(f"failed {name[5:]}: {type(why).__name__}: {why}", flush=True)


main()
