"""Makes a wheel of an installed tree: wheel.py TREE VERSION GLIBC OUTPUT-FOLDER

Objects lie inside the package, `uunwind/tree/`, where `uu` finds them relative to itself: they clash with nothing in an
environment's lib/, and `pip install --target` keeps them. The format is that of
https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import base64
import hashlib
import os
import sys
import time
import zipfile

tree, version, glibc, output = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
tag = "py3-none-manylinux_%s_x86_64" % glibc.replace(".", "_")
info = "uunwind-%s.dist-info" % version
# A ZIP file has no dates before 1980.
date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315532800))[:6]
entries = {}


def read(path):
    with open(path, "rb") as file:
        return file.read()


for name in os.listdir(os.path.join(here, "uunwind")):
    if name.endswith((".py", ".typed")):
        entries["uunwind/" + name] = (read(os.path.join(here, "uunwind", name)), 0o644)
for folder, _, names in os.walk(tree):
    for name in names:
        path = os.path.join(folder, name)
        place = os.path.relpath(path, tree)
        mode = 0o755 if os.access(path, os.X_OK) else 0o644
        if place.startswith("share/doc/"):
            # What the licences demand to be there, where tools look for it.
            if name == "copyright" or name.startswith(("LICENSE", "THIRD-PARTY")):
                entries["%s/licenses/%s" % (info, name)] = (read(path), mode)
            else:
                entries["uunwind-%s.data/data/%s" % (version, place)] = (read(path), mode)
        elif place.startswith("share/") and not place.startswith("share/lua/"):
            entries["uunwind-%s.data/data/%s" % (version, place)] = (read(path), mode)
        elif os.path.islink(path):
            # A wheel has no symbolic links. This is a script for the linker, which looks beside it first.
            entries["uunwind/tree/" + place] = (b"INPUT(%s)\n" % os.readlink(path).encode(), 0o644)
        else:
            entries["uunwind/tree/" + place] = (read(path), mode)

entries[info + "/METADATA"] = (
    """Metadata-Version: 2.1
Name: uunwind
Version: {0}
Summary: uu, a profiler: native, Python, other interpreted and JIT frames in one stack, without privileges
License: MIT OR Apache-2.0
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Software Development :: Debuggers
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

`uu record -- python3 app.py` shows where a program spends its CPU time: native code, Python and other
languages, and code of JITs, in one stack. It needs Linux on x86-64 with glibc {1} or later.
`python -m uunwind` is the same command. The module `uunwind` has the same stacks inside a program: `uunwind.stack()`,
`uunwind.dump_threads()`, `uunwind.report_crashes()`, `uunwind.record()`, `uunwind.watchdog()`, `uunwind.label()`.
`pytest --uu` and, in Jupyter, `%%uu` make profiles of tests and cells.
""".format(version, glibc).encode(),
    0o644,
)
entries[info + "/WHEEL"] = (
    "Wheel-Version: 1.0\nGenerator: uunwind\nRoot-Is-Purelib: false\nTag: {}\n".format(tag).encode(),
    0o644,
)
entries[info + "/entry_points.txt"] = (
    b"[console_scripts]\nuu = uunwind.__main__:main\n\n[pytest11]\nuunwind = uunwind.pytest_plugin\n",
    0o644,
)

record = []
for name in sorted(entries):
    digest = base64.urlsafe_b64encode(hashlib.sha256(entries[name][0]).digest()).rstrip(b"=").decode()
    record.append("%s,sha256=%s,%d" % (name, digest, len(entries[name][0])))
record.append(info + "/RECORD,,\n")
entries[info + "/RECORD"] = ("\n".join(record).encode(), 0o644)

wheel = os.path.join(output, "uunwind-%s-%s.whl" % (version, tag))
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for name in sorted(entries):
        content, mode = entries[name]
        entry = zipfile.ZipInfo(name, date)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, content)
