#!/usr/bin/env python3
"""Shares of CPU time by the function at the leaf: `uu record --kernel` beside `perf record -e cpu-clock`, on five
programs.

  shares.py UU [ROUNDS [SECONDS [PROGRAM...]]]

In each round a program runs four times: under perf, uu and perf, and under both at once. A leaf is its function in the
kernel, or the object and the function around its address: where functions begin, the object's .eh_frame_hdr says for
both, so that no names are compared. Functions with fewer than 20 samples count as one. Printed are the chi-squared
statistics (by degree of freedom: about 1 is chance alone, if samples do not depend on each other) of uu beside perf
and of perf's first runs beside its second ones, the error that perf makes of itself, and the greatest difference of a
share. Samples of one run do depend on each other, where a program runs otherwise each time. So the runs are divided in
every other way, too: *by chance* is the share of all ways that differ at least as much as uu's runs and perf's. *In
one run* is the statistic of the runs under both, by leaves in user space that are not uu's: there, both have the same
program before them, whatever it does in that run. Exit code 1: uu stands further from perf than perf from itself, and
than such chance, explain; or further in one run than chance explains."""

import bisect
import collections
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

RATE = "999"
# Of perf, where both sample one run: the distance between their ticks changes.
OTHER_RATE = "1013"
FEW = 20
# The samples of a run are not independent: one run is a little slower in one place than the next.
MARGIN = 1.5
# What happens less often is not called chance. With one or two rounds, nothing does.
CHANCE = 0.05

PYTHON = """
import json, re, sys, time
end = time.process_time() + float(sys.argv[1])
d = {str(i): list(range(20)) for i in range(50)}
while time.process_time() < end:
    json.loads(json.dumps(d)); sorted(d, key=lambda k: int(k)); re.sub('[0-9]+', lambda m: m.group()[::-1], str(d))
    with open('/dev/zero', 'rb') as zero: zero.read(1 << 18)
"""
SQL = """with recursive c(x) as (select 1 union all select x + 1 from c where x < %d)
select count(*), sum(length(printf('%%d-%%d', x, x * x))), max(hex(x) like '%%aff%%') from c;"""
LUA = """
local stop = os.clock() + tonumber(arg[1])
local words = {}
while os.clock() < stop do
    for i = 1, 2000 do words[i] = string.format('%d:%s', i * 7 % 1000, ('x'):rep(i % 30)) end
    table.sort(words)
    local n = 0
    for i = 1, 2000 do n = n + #words[i]:gsub('x+', 'y') end
end
"""
NODE = """
const crypto = require('crypto'), zlib = require('zlib');
const end = process.cpuUsage().user + %d;
const data = Buffer.from(Array.from({ length: 200000 }, (_, i) => i * 7919 %% 251));
while (process.cpuUsage().user < end) {
    zlib.inflateSync(zlib.deflateSync(data));
    crypto.createHash('sha256').update(data).digest();
    JSON.parse(JSON.stringify(Array.from(data.subarray(0, 20000))));
}
"""


class Object:
    """Where the functions of an ELF file begin, and its segments."""

    def __init__(self, path):
        self.starts, self.segments = [], []
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return
        if data[:5] != b"\x7fELF\x02":
            return
        offset, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        for at in range(offset, offset + size * count, size):
            kind, _, file_offset, address, _, file_size = struct.unpack_from("<IIQQQQ", data, at)
            if kind == 1:
                self.segments.append((file_offset, file_size, address))
            elif kind == 0x6474E550 and data[file_offset + 1 : file_offset + 4] == b"\x1b\x03\x3b":
                entries, = struct.unpack_from("<I", data, file_offset + 8)
                table = struct.unpack_from("<%di" % (entries * 2), data, file_offset + 12)
                self.starts = [address + start for start in table[::2]]

    def address(self, offset):
        for file_offset, size, address in self.segments:
            if file_offset <= offset < file_offset + size:
                return address + offset - file_offset
        return None

    def function(self, address):
        at = bisect.bisect_right(self.starts, address)
        return self.starts[at - 1] if at else 0


OBJECTS = {}


def opened(path):
    if path not in OBJECTS:
        OBJECTS[path] = Object(os.path.realpath(path))
    return OBJECTS[path]


def function(path, address):
    return "%s %#x" % (os.path.realpath(path), opened(path).function(address))


def by_uu(recording, uu):
    report = json.loads(
        subprocess.run(
            [uu, "report", recording, "-f", "json", "--native-frames", "show"], check=True, capture_output=True
        ).stdout
    )
    found = collections.Counter()
    for stack in report["stacks"]:
        frames = [report["frames"][frame] for frame in stack["frames"]]
        # Interpreted and inlined frames stand above the machine code that executes them.
        leaf = next((f for f in frames if f["kind"] not in ("inlined", "interpreted")), None)
        if leaf is None or leaf["kind"] == "remark":
            name = "[none]"
        elif leaf["kind"] == "kernel":
            name = "kernel " + leaf["function"].removesuffix(" [k]")
        elif leaf["kind"] == "jit" or leaf["object"] is None:
            name = "[no object]"
        else:
            name = function(report["objects"][leaf["object"]]["path"], int(leaf["address"], 16))
        found[name] += stack["weight"]
    return found


MAP = re.compile(
    r"PERF_RECORD_MMAP2? (\d+)/\d+: \[(0x[0-9a-f]+)\((0x[0-9a-f]+)\) @ (0x[0-9a-f]+|0)[^\]]*\]: (\S+) (.*)$"
)
SAMPLE = re.compile(r"^\s*(.*?)\s+(\d+)\s+([0-9a-f]+) (.*) \(([^()]*(?:\([^()]*\))?)\)$")


def by_perf(data):
    command = ["perf", "script", "-i", data, "--show-mmap-events", "-F", "comm,pid,ip,sym,dso"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, maps = collections.Counter(), collections.defaultdict(list)
    for line in out.splitlines():
        mapped, sample = MAP.search(line), SAMPLE.match(line)
        if mapped:
            pid, start, length, offset, protection, path = mapped.groups()
            if "x" in protection and int(pid) > 0:
                maps[pid].append((int(start, 16), int(length, 16), int(offset, 16), path))
        elif sample:
            comm, pid, ip, symbol, dso = sample.groups()
            ip = int(ip, 16)
            if comm.startswith(("uu", "perf")):
                continue
            if ip >> 63:
                found["kernel " + symbol] += 1
                continue
            # The latest one counts.
            place = next((m for m in reversed(maps[pid]) if m[0] <= ip < m[0] + m[1]), None)
            if place and place[3] == "[vdso]":
                found["[vdso]"] += 1
            elif (
                place is None or not place[3].startswith("/") or place[3].startswith(("//anon", "/dev/zero", "/memfd"))
            ):
                found["[no object]"] += 1
            else:
                found[function(place[3], opened(place[3]).address(ip - place[0] + place[2]) or 0)] += 1
    return found


def in_user_space(found, uu):
    """The leaves that are neither the kernel's nor uu's."""
    own = os.path.dirname(os.path.dirname(os.path.realpath(uu)))
    return collections.Counter(
        {name: count for name, count in found.items() if not name.startswith(("kernel ", "[none]", own))}
    )


def c_source(functions):
    """A file of C with that many functions, which no two are alike."""
    parts = ["struct node { struct node *next, *other; int key[8]; };\n"]
    for i in range(functions):
        loops = "".join(
            f"    for (int i{j} = {j}; i{j} < n + {i % 7}; i{j}++) "
            f"{{ x ^= p->key[(x + i{j}) & 7] * {i * 31 + j}; if (x & {1 << (j + i) % 13}) p = p->next; }}\n"
            for j in range(3 + i % 4)
        )
        call = f"    if (x > {i}) x += f{i - 1 - i % 5}(p->other, n - 1);\n" if i > 5 else ""
        parts.append(
            f"unsigned f{i}(struct node *p, int n) {{\n    unsigned x = n * {i};\n{loops}{call}    return x;\n}}\n"
        )
    return "".join(parts)


def programs(seconds, folder):
    python = next((p for p in ("/usr/bin/python3", sys.executable) if os.path.exists(p)), sys.executable)
    lua = os.path.join(folder, "work.lua")
    with open(lua, "w") as file:
        file.write(LUA)
    source = os.path.join(folder, "work.c")
    with open(source, "w") as file:
        file.write(c_source(int(seconds * 300)))
    return {
        "python3": [python, "-c", PYTHON, str(seconds)],
        "luajit": ["luajit", lua, str(seconds)],
        "node": ["node", "-e", NODE % (int(seconds) * 1_000_000)],
        "gcc": ["gcc", "-O2", "-c", "-o", os.path.join(folder, "work.o"), source],
        "sqlite3": ["sqlite3", ":memory:", SQL % (int(seconds) * 900_000)],
    }


def run(before, command):
    child = subprocess.Popen(
        before + command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, said = child.communicate()
    if child.returncode:
        raise SystemExit("%s: exit %d: %s" % (command[0], child.returncode, said.decode(errors="replace")[-2000:]))
    refused = re.search(r"no perf events \(.*", said.decode(errors="replace"))
    if refused:
        raise SystemExit("uu: " + refused.group())


def distance(a, b):
    """Chi-squared by degree of freedom, their number, and the greatest difference of a share with its function."""
    both = a + b
    names = [name for name, count in both.items() if count >= FEW]
    rest = lambda of: sum(of.values()) - sum(of[name] for name in names)
    rows = [(name, a[name], b[name]) for name in names] + ([("rest", rest(a), rest(b))] if rest(both) >= FEW else [])
    all_a, all_b = sum(a.values()), sum(b.values())
    total, worst = 0.0, (0.0, "")
    for name, in_a, in_b in rows:
        for found, of in ((in_a, all_a), (in_b, all_b)):
            due = (in_a + in_b) * of / (all_a + all_b)
            total += (found - due) ** 2 / due
        worst = max(worst, (abs(in_a / all_a - in_b / all_b), name))
    freedom = max(len(rows) - 1, 1)
    return total / freedom, freedom, worst


def by_chance(ours, perf):
    """The share of all ways to divide the runs that differ at least as much as this one."""
    runs = ours + perf
    total = sum(runs, collections.Counter())

    def differs(which):
        part = sum((runs[index] for index in which), collections.Counter())
        return distance(part, total - part)[0]

    real = differs(range(len(ours)))
    ways = [differs(which) for which in itertools.combinations(range(len(runs)), len(ours))]
    return sum(way >= real * 0.999999 for way in ways) / len(ways)


def main():
    uu = sys.argv[1]
    wanted = sys.argv[4:]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 5
    if not shutil.which("perf"):
        raise SystemExit("perf is not on PATH")
    print(
        "| program | samples of uu, perf | functions | uu and perf | perf and itself | by chance "
        "| greatest difference of a share | in one run | its greatest difference |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        data, recording = os.path.join(folder, "perf.data"), os.path.join(folder, "x.uu")
        perf_at = lambda rate: ["perf", "record", "-q", "-e", "cpu-clock", "-F", rate, "-o", data, "--"]
        record, record_too = perf_at(RATE), perf_at(OTHER_RATE)
        record_uu = [uu, "record", "--kernel", "-r", RATE, "-o", recording, "--"]
        for name, command in programs(seconds, folder).items():
            if wanted and name not in wanted:
                continue
            if not shutil.which(command[0]):
                print("skipped: %s: it is not on PATH" % name)
                continue
            perf, ours, at_once = ([], []), [], (collections.Counter(), collections.Counter())
            for _ in range(rounds):
                run(record, command)
                perf[0].append(by_perf(data))
                run(record_uu, command)
                ours.append(by_uu(recording, uu))
                run(record, command)
                perf[1].append(by_perf(data))
                run(record_too + record_uu, command)
                at_once[0].update(in_user_space(by_uu(recording, uu), uu))
                at_once[1].update(in_user_space(by_perf(data), uu))
            chance = by_chance(ours, perf[0] + perf[1])
            ours, *perf = (sum(runs, collections.Counter()) for runs in (ours, *perf))
            both = perf[0] + perf[1]
            far, functions, worst = distance(ours, both)
            near, _, own = distance(*perf)
            beside, _, worst_beside = distance(*at_once)
            counts = "%d, %d" % (sum(ours.values()), sum(both.values()))
            print(
                "| %s | %s | %d | %.2f | %.2f | %.2f | %.2f %% (%s); perf's own %.2f %% | %.2f | %.2f %% (%s) |"
                % (
                    *(name, counts, functions + 1, far, near, chance, worst[0] * 100, worst[1], own[0] * 100),
                    *(beside, worst_beside[0] * 100, worst_beside[1]),
                ),
                flush=True,
            )
            if os.environ.get("UU_SHARES"):
                for function_, _ in (ours + both).most_common(25):
                    print(
                        "    %7.2f %% %7.2f %%  %s"
                        % (
                            ours[function_] * 100 / sum(ours.values()),
                            both[function_] * 100 / sum(both.values()),
                            function_,
                        )
                    )
            if far > max(1, near) * MARGIN and chance < CHANCE or beside > MARGIN:
                wrong.append(name)
    if wrong:
        raise SystemExit("further from perf than chance explains: " + ", ".join(wrong))


main()
