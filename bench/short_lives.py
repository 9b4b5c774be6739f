#!/usr/bin/env python3
"""Threads and processes that live for a part of the kernel's tick: their share of the samples, and what recording costs
each.

  short_lives.py UU SOURCE [ROUNDS]     UU: the command uu; SOURCE: tests/targets/native/short_threads.c

Threads compute for a millisecond, or 0.3 ms, one after the other; a shell runs /bin/true 400 times. The share is the
CPU time that is sampled, to what the program used, its children included. The added CPU time is that of a process,
alone beside recorded, in turn."""

import os
import re
import statistics
import subprocess
import sys
import tempfile

LOOP = "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done"


def cpu(command):
    """CPU seconds of a program and the children that it has waited for."""
    with open(os.devnull, "w") as null:
        child = subprocess.Popen(command, stdout=null, stderr=null)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command} failed with status {status}")
    return usage.ru_utime + usage.ru_stime


def recorded(uu, rate, command, folder):
    """CPU seconds sampled and used, as the summary has them."""
    out = os.path.join(folder, "x.uu")
    subprocess.run(
        [uu, "record", "-q", "-r", rate, "-o", out, "--"] + command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    text = subprocess.run([uu, "report", out], check=True, capture_output=True, text=True).stdout
    os.remove(out)
    found = re.search(r"CPU time +([0-9.]+) s sampled of ([0-9.]+) s used", text)
    return (float(found[1]), float(found[2])) if found else sys.exit(f"no CPU time in:\n{text}")


def main():
    uu, source = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    print("\n### Lives that are shorter than a tick\n\n| | share of the CPU time that is sampled |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "short_threads")
        subprocess.run(["gcc", "-O1", "-g", "-pthread", "-o", program, source], check=True)
        for rate in ["99", "1000"]:
            for length in [1000, 300]:
                command = [program, str(1500000 // length), str(length)]
                pairs = [recorded(uu, rate, command, folder) for _ in range(rounds)]
                share = sum(sampled for sampled, _ in pairs) / sum(used for _, used in pairs)
                print(f"| threads of {length} us, {rate} Hz | {share:.2f} |", flush=True)
        loop, added, pairs = ["/bin/sh", "-c", LOOP], [], []
        for _ in range(rounds):
            alone = cpu(loop)
            pairs.append(recorded(uu, "999", loop, folder))
            added.append((pairs[-1][1] - alone) / 400 * 1000)
        share = sum(sampled for sampled, _ in pairs) / sum(used for _, used in pairs)
        print(f"| `/bin/true`, 400 times, 999 Hz | {share:.2f} |")
        print(f"\nRecording adds {statistics.median(added):.2f} ms of CPU time to each `/bin/true`.")


if __name__ == "__main__":
    main()
