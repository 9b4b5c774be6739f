#!/usr/bin/env python3
"""Makes a memory image of an interpreter: what `uu dump CORE` reads of a core file and of the files that its process
had mapped, and nothing else. It is walked by tests/tests/memory_images.rs also where there is no such interpreter.

    tests/images/make.py UU PYTHON NAME      writes tests/images/NAME.tar.xz

Needs gcore or core files of the kernel in the working directory, strace, binutils and xz. PYTHON is copied with its
libraries to a folder below /tmp first, so that the image has no path of this machine. `PYTHON_JIT` is passed on.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PAGE = 4096
HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parent / "targets/python/imaged.py"
# Number of threads that say their stacks.
THREADS = 5
PLACE = Path("/tmp/uu-image")
AWAY = Path("/tmp/uu-image-kept")
# What is read in longer parts is searched, or prepared as a whole: not all of it is needed.
SEARCH = 1 << 16


def installed(python):
    """A copy of the interpreter without debug information, and its environment."""
    code = "import sys, sysconfig; print(sys.prefix, sysconfig.get_path('stdlib'))"
    prefix, library = subprocess.check_output([python, "-c", code], text=True).split()
    real = Path(python).resolve()
    executable = PLACE / "bin" / real.name
    executable.parent.mkdir(parents=True)
    shutil.copy(real, executable)
    if ".symtab" in subprocess.check_output(["readelf", "-SW", executable], text=True):
        subprocess.run(["strip", "-s", executable], check=True)
    # An interpreter of another distribution's release has a loader and libraries of its own.
    loader = subprocess.check_output(["patchelf", "--print-interpreter", executable], text=True).strip()
    if not loader.startswith("/lib"):
        own = PLACE / "own"
        shutil.copytree(Path(loader).parent, own, ignore=lambda _, names: [n for n in names if ".so" not in n])
        subprocess.run(["patchelf", "--set-interpreter", own / Path(loader).name, executable], check=True)
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", own, executable], check=True)
    skipped = ["test", "site-packages", "dist-packages", "config-*", "idlelib", "ensurepip", "__pycache__"]
    shutil.copytree(library, PLACE / Path(library).relative_to(prefix), ignore=shutil.ignore_patterns(*skipped))
    shutil.copy(PROGRAM, PLACE / "imaged.py")
    environment = {
        "PYTHONHOME": PLACE,
        "PYTHON_JIT": os.environ.get("PYTHON_JIT", "0"),
        "LC_ALL": "C.UTF-8",
        "HOME": PLACE,
    }
    return executable, environment


def all_sleep(pid):
    states = [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return len(states) == THREADS and all(state == "S" for state in states)


def core_of(executable, environment):
    """Starts the program, lets a core file be written of it, and returns that with what the program has said."""
    command = ["sh", "-c", 'ulimit -c unlimited; exec "$0" "$@"', executable, "-s", PLACE / "imaged.py"]
    running = subprocess.Popen(command, env=environment, cwd=PLACE, stdout=subprocess.PIPE, text=True)
    said = "".join(running.stdout.readline() for _ in range(THREADS))
    if said.count("\n") < THREADS:
        sys.exit(f"the program ended with {running.wait()}")
    # Twice, since a thread sleeps now and then before it waits for ever.
    for _ in range(2):
        while running.poll() is None and not all_sleep(running.pid):
            time.sleep(0.05)
        time.sleep(0.5)
    if Path("/proc/sys/kernel/core_pattern").read_text().strip() == "core":
        running.send_signal(signal.SIGABRT)
    else:
        subprocess.run(["gcore", "-o", PLACE / "core", str(running.pid)], check=True, stdout=subprocess.DEVNULL)
        running.kill()
    running.wait()
    (core,) = [path for path in PLACE.iterdir() if path.name.startswith("core")]
    return core, said


def dump(uu, core, options=(), under=()):
    """What a dump says, with nothing kept from an earlier one."""
    shutil.rmtree(PLACE / "cache", ignore_errors=True)
    environment = dict(os.environ, XDG_CACHE_HOME=str(PLACE / "cache"), DEBUGINFOD_URLS="")
    command = [*under, uu, "dump", "--json", "--native-frames", "show", core, *options]
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=under != (), text=True).stdout
    threads = json.loads(out)["threads"] if out else []
    # Names of native functions, and inlined ones, may come from debug packages of this machine.
    word = {"interpreted": "function", "native": "kind"}
    kept = [[frame for frame in thread["frames"] if frame["kind"] in word] for thread in threads]
    names = [[frame[word[frame["kind"]]] for frame in frames] for frames in kept]
    return list(zip([thread["complete"] for thread in threads], names))


def read_by_uu(uu, core):
    """The pages that a dump reads: by file, those that it reads for themselves, and those that it only searches."""
    trace = PLACE / "trace"
    trace.mkdir()
    strace = ["strace", "-ff", "-y", "-s", "0", "-e", "trace=pread64", "-o", trace / "calls"]
    said = dump(uu, core, under=strace)
    call = re.compile(r"pread64\(\d+<(/[^>]*)>, .*, \d+, (\d+)\) += (\d+)$")
    wanted, searched = {}, {}
    for part in trace.iterdir():
        calls = [call.match(line) for line in part.read_text().splitlines()]
        calls = [(found[1], int(found[2]), int(found[3])) for found in calls if found]
        for path, offset, size in calls:
            if path.startswith("/usr/lib/debug"):
                continue
            with open(path, "rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
            kind = searched if size > SEARCH else wanted
            kind.setdefault(path, set()).update(range(offset // PAGE, (offset + size + PAGE - 1) // PAGE))
    return said, wanted, {(path, page) for path, pages in searched.items() for page in pages - wanted.get(path, set())}


def copy_pages(source, pages, to):
    """A file of the same length with these pages only."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as whole, open(to, "wb") as part:
        for page in sorted(pages):
            whole.seek(page * PAGE)
            part.seek(page * PAGE)
            part.write(whole.read(PAGE))
        part.truncate(os.path.getsize(source))


def lay_out(core, wanted, image):
    shutil.rmtree(image, ignore_errors=True)
    for path, pages in wanted.items():
        copy_pages(AWAY / Path(path).relative_to(PLACE) if Path(path).is_relative_to(PLACE) else path, pages,
                   image / ("core" if Path(path) == core else "files" + path))


def needed(is_enough, base, more):
    """Those of the pages `more` that are needed beside `base`."""
    if is_enough(base):
        return []
    if len(more) == 1:
        return more
    first, second = more[: len(more) // 2], more[len(more) // 2 :]
    kept = needed(is_enough, base + second, first)
    return kept + needed(is_enough, base + kept, second)


def main():
    uu, python, name = sys.argv[1:]
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.rmtree(AWAY, ignore_errors=True)
    executable, environment = installed(python)
    core, said = core_of(executable, environment)
    expected, wanted, searched = read_by_uu(uu, core)
    # Not at the paths that the core file has.
    PLACE.rename(AWAY)
    PLACE.mkdir()
    image = PLACE / "image"

    def is_enough(pages):
        together = {path: set(pages) for path, pages in wanted.items()}
        for path, page in pages:
            together.setdefault(path, set()).add(page)
        lay_out(core, together, image)
        return dump(uu, image / "core", ["--debug-dir", image / "files"]) == expected

    assert is_enough(sorted(searched)), "the image is another one than the core file"
    found = needed(is_enough, [], sorted(searched))
    assert is_enough(found)
    print(f"{len(found)} of {len(searched)} pages that are searched are needed")
    (image / "said.json").write_text(said)
    for word in {str(Path(python).parent.parent), str(HERE.parent.parent)} - {"/usr"}:
        if subprocess.run(["grep", "-rqaF", word, image]).returncode == 0:
            sys.exit(f"the image contains {word}")
    archive = HERE / f"{name}.tar.xz"
    tar = ["tar", "--sparse", "--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-C", image, "-cf", "-", "."]
    with open(archive, "wb") as out, subprocess.Popen(tar, stdout=subprocess.PIPE) as packed:
        subprocess.run(["xz", "-9e"], stdin=packed.stdout, stdout=out, check=True)
    print(f"{archive}: {archive.stat().st_size // 1024} KiB")


main()
