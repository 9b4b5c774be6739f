"""Makes stubs of an older glibc's libraries out of this machine's, so that what is linked with them runs there.

    older_glibc.py VERSION FOLDER          such as 2.28

This machine's glibc has the old versions of its symbols, too. A stub has no code: of each symbol, it names the newest
version that is not above VERSION, in the library in which it was then (libpthread, libdl and librt became part of libc
in 2.34). Whatever has no such version cannot be linked: the linker names it. FOLDER gets libc.so and its like, to be
searched first (-L), and functions.o with what was part of the programs then: stat and its like (until 2.33), and the
call of the program's constructors (until 2.34), which only programs of the time had libc leave to them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

LIBRARIES = {"libc.so.6": "c", "libm.so.6": "m", "libpthread.so.0": "pthread", "libdl.so.2": "dl", "librt.so.1": "rt",
             "libutil.so.1": "util"}
LOADER = "ld-linux-x86-64.so.2"
# Where functions were that have a version of 2.29 or later, and an old one. The first that matches decides.
MOVED = [
    (r"__libc_start_main$|posix_spawnp?$|regexec$", "libc.so.6"),
    (r"dl[a-z]", "libdl.so.2"),
    (r"(timer|mq|aio|lio|shm)_", "librt.so.1"),
    (r"(openpty|forkpty|login)", "libutil.so.1"),
    (r"(pthread|sem|mtx|cnd|thrd|tss)_|__pthread_|call_once$|raise$", "libpthread.so.0"),
]
MOVING = (2, 29)

FUNCTIONS = r"""
#ifdef __x86_64__
#define STAT 1
#define FIRST "GLIBC_2.2.5"
#else
#define STAT 0
#define FIRST "GLIBC_2.17"
#endif
#define HIDDEN __attribute__((visibility("hidden")))
int __xstat(int, const char *, void *), __lxstat(int, const char *, void *), __fxstat(int, int, void *);
int __xstat64(int, const char *, void *), __lxstat64(int, const char *, void *), __fxstat64(int, int, void *);
HIDDEN int stat(const char *path, void *to) { return __xstat(STAT, path, to); }
HIDDEN int lstat(const char *path, void *to) { return __lxstat(STAT, path, to); }
HIDDEN int fstat(int fd, void *to) { return __fxstat(STAT, fd, to); }
HIDDEN int stat64(const char *path, void *to) { return __xstat64(STAT, path, to); }
HIDDEN int lstat64(const char *path, void *to) { return __lxstat64(STAT, path, to); }
HIDDEN int fstat64(int fd, void *to) { return __fxstat64(STAT, fd, to); }

/* The program's constructors. glibc from 2.34 on runs them itself where it is given no function, an older one does not;
   each runs the function that it is given. */
typedef void function(int, char **, char **);
extern HIDDEN function *__preinit_array_start[], *__preinit_array_end[], *__init_array_start[], *__init_array_end[];
static void constructors(int count, char **arguments, char **environment) {
    for (function **each = __preinit_array_start; each < __preinit_array_end; each++)
        (*each)(count, arguments, environment);
    for (function **each = __init_array_start; each < __init_array_end; each++)
        (*each)(count, arguments, environment);
}
/* Destructors by DT_FINI_ARRAY are run by the loader for what it loads, and for a program by this. */
extern HIDDEN void (*__fini_array_start[])(void), (*__fini_array_end[])(void);
static void destructors(void) {
    for (void (**each)(void) = __fini_array_end; each > __fini_array_start;)
        (*--each)();
}
typedef int program(int, char **, char **);
int libc_starts(program *, int, char **, function *, void (*)(void), void (*)(void), void *);
__asm__(".symver libc_starts, __libc_start_main@" FIRST);
HIDDEN int __libc_start_main(program *main, int count, char **arguments, function *init, void (*fini)(void),
                             void (*loader)(void), void *stack) {
    return libc_starts(main, count, arguments, init ? init : constructors, fini ? fini : destructors, loader, stack);
}
"""


def number(version):
    return tuple(int(part) for part in version.split("."))


def symbols(library):
    """Of a library of this machine: name, version in numbers, whether it is a variable, its size."""
    path = subprocess.run(["cc", f"-print-file-name={library}"], check=True, capture_output=True, text=True).stdout
    shown = subprocess.run(["readelf", "--dyn-syms", "-W", path.strip()], check=True, capture_output=True, text=True)
    for line in shown.stdout.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] == "UND" or fields[4] == "LOCAL" or fields[3] == "TLS":
            continue
        found = re.fullmatch(r"(\w+)@@?GLIBC_([0-9.]+)", fields[7])
        if found:
            yield found[1], number(found[2]), fields[3] == "OBJECT", int(fields[2], 0)


def of_then(limit):
    """What each library had: by library and name, the version and what it is."""
    libraries = {library: {} for library in [*LIBRARIES, LOADER]}
    for library in libraries:
        versions = {}
        for name, version, variable, size in symbols(library):
            versions.setdefault(name, []).append((version, variable, size))
        for name, known in versions.items():
            then = [one for one in known if one[0] <= limit]
            if not then:
                continue
            place = library
            if library == "libc.so.6" and max(known)[0] >= MOVING:
                place = next((to for pattern, to in MOVED if re.match(pattern, name)), library)
            libraries[place].setdefault(name, max(then))
    return libraries


def stub(folder, library, names):
    """The library."""
    source, script = folder / f"{library}.s", folder / f"{library}.map"
    versions = sorted({version for version, _, _ in names.values()}) or [(2, 2, 5)]
    text = lambda version: "GLIBC_" + ".".join(map(str, version))
    script.write_text("".join(f"{text(version)} {{ local: s[0-9]*; }};\n" for version in versions))
    lines = []
    for index, (name, (version, variable, size)) in enumerate(sorted(names.items())):
        kind = "object" if variable else "function"
        lines += [f".data" if variable else ".text", f".globl s{index}", f".type s{index}, %{kind}",
                  f".size s{index}, {max(size, 1)}", f"s{index}: .skip {max(size, 1) if variable else 1}",
                  f".symver s{index}, {name}@@{text(version)}"]
    source.write_text("\n".join(lines + ['.section .note.GNU-stack,"",%progbits', ""]))
    subprocess.run(["cc", "-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}",
                    "-fuse-ld=bfd", "-o", folder / library, source], check=True)
    source.unlink()
    script.unlink()


def main():
    if len(sys.argv) != 3 or not re.fullmatch(r"2\.\d+", sys.argv[1]):
        sys.exit(__doc__)
    limit, folder = number(sys.argv[1]), Path(sys.argv[2]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for library, names in of_then(limit).items():
        stub(folder, library, names)
    for library, name in LIBRARIES.items():
        needs = f" AS_NEEDED ( {folder / LOADER} )" if name == "c" else ""
        (folder / f"lib{name}.so").write_text(f"GROUP ( {folder / library}{needs} )\n")
    source = folder / "functions.c"
    source.write_text(FUNCTIONS)
    subprocess.run(["cc", "-O2", "-fPIC", "-ffunction-sections", "-fno-builtin", "-fno-stack-protector", "-w", "-c",
                    "-o", folder / "functions.o", source], check=True)
    source.unlink()


main()
