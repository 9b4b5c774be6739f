#!/usr/bin/env python3
"""Makes the records of this folder: what Linux writes into a perf ring where user stacks are taken later, and what perf
says of them. By hand, with root's rights and qemu-system-x86_64, cpio, a C compiler, a kernel image, and a folder with
a root file system that has perf of the same version (for Debian: `mmdebstrap --variant=minbase --include=linux-perf
sid FOLDER`, and `vmlinuz` of the package `linux-binary-VERSION-amd64`):

    ./make.py VMLINUZ ROOT NAME      writes NAME.data and NAME.script
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIELDS = "pid,tid,time,period,ip,uregs"
ATTEMPTS = 5
# In a perf.data of `capture.c`: where the records begin.
RECORDS = 104 + 144
SAMPLE, DEFERRED = 9, 22


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **more).stdout


def captured(kernel, folder):
    """The file that a virtual machine writes to its console."""
    init = os.path.join(folder, "init")
    run("cc", "-static", "-O1", "-fno-omit-frame-pointer", "-o", init, os.path.join(HERE, "capture.c"))
    os.makedirs(os.path.join(folder, "dev"), exist_ok=True)
    disk = os.path.join(folder, "disk")
    with open(disk, "wb") as out:
        out.write(run("cpio", "--quiet", "-o", "-H", "newc", input=b"init\ndev\n", cwd=folder))
    console = run(
        "qemu-system-x86_64", "-machine", "q35", "-cpu", "max", "-smp", "1", "-m", "512", "-nographic", "-no-reboot",
        "-kernel", kernel, "-initrd", disk, "-append", "console=ttyS0 rdinit=/init quiet panic=-1",
        stdin=subprocess.DEVNULL, timeout=300)
    found = re.search(rb"BEGIN\s+([0-9a-f\s]+)\s+END", console)
    if not found:
        sys.exit("the machine wrote no records: " + console[-2000:].decode(errors="replace"))
    return bytes.fromhex(found[1].decode())


def cookies(data):
    """Cookies of samples, and of stacks."""
    at, samples, stacks = RECORDS, [], []
    while at < len(data):
        kind = int.from_bytes(data[at:at + 4], "little")
        size = int.from_bytes(data[at + 6:at + 8], "little")
        word = lambda index: int.from_bytes(data[at + 8 * index:at + 8 * index + 8], "little")
        if kind == SAMPLE:
            # Header, ip, thread, time, value; then the chain, which ends in the cookie.
            samples.append(word(5 + word(5)))
        elif kind == DEFERRED:
            stacks.append(word(1))
        at += size
    return samples, stacks


def has_all_kinds(data):
    samples, stacks = cookies(data)
    shared = any(samples.count(cookie) > 1 and cookie in stacks for cookie in samples)
    return shared and any(cookie not in stacks for cookie in samples)


def script(root, data):
    """What perf says. It wants /sys for the events' names, and dies without /proc."""
    inside = os.path.join(root, "records.data")
    with open(inside, "wb") as out:
        out.write(data)
    mounted = []
    try:
        for name in ("sys", "proc"):
            run("mount", "--bind", "/" + name, os.path.join(root, name))
            mounted.append(os.path.join(root, name))
        return run("chroot", root, "perf", "script", "--no-merge-callchains", "--ns", "-F", FIELDS,
                   "-i", "/records.data", stderr=subprocess.DEVNULL)
    finally:
        for place in mounted:
            run("umount", place)
        os.remove(inside)


def main(kernel, root, name):
    folder = tempfile.mkdtemp()
    try:
        for _ in range(ATTEMPTS):
            data = captured(kernel, folder)
            if has_all_kinds(data):
                break
        else:
            sys.exit("no run has both a stack of several samples and a sample whose stack never came")
    finally:
        shutil.rmtree(folder)
    with open(os.path.join(HERE, name + ".data"), "wb") as out:
        out.write(data)
    with open(os.path.join(HERE, name + ".script"), "wb") as out:
        out.write(script(root, data))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
