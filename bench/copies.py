#!/usr/bin/env python3
"""Bytes that a sample takes as a copy of its stack (uu record --unwind offline), and what general compressors make of
raw stacks of the same programs.

  copies.py UU CODER PYTHON [STACKS]

Each program is recorded once; its copies are read from the recording by docs/recording-format.md. Printed for each:
number of samples, bytes of the stacks that were copied, of the copies (registers included, and without them), and how
many times smaller that is. Beside it, the words of the same copies by the simplest coding: a LEB128 run of words left
out with each kept word, distances of code addresses from the last one, of frames from the stack pointer. Then STACKS
(40) raw stacks of running threads in other runs of the program, taken by ptrace(2), each coded alone by CODER
(`uunwind-bench-copies`: uu's coding, registers included), `lz4` and `zstd -1` (without registers)."""

import ctypes
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_GETREGS, PTRACE_DETACH = 0x4206, 0x4207, 12, 17
LIBC = ctypes.CDLL(None, use_errno=True)
# Places of the registers in user_regs_struct, in DWARF order: rax rdx rcx rbx rsi rdi rbp rsp r8 to r15.
DWARF = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0]
FRAMING = {"lz4": 19, "zstd": 13}  # bytes of an empty input, about: header and checksum


def leb(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def length(number):
    return max(1, (number.bit_length() + 6) // 7)


def zigzag(number):
    return 2 * number if number >= 0 else -2 * number - 1


def unzigzag(number):
    return (number >> 1) ^ -(number & 1)


def in_table(address, places):
    return (address * 0x9E3779B97F4A7C15 >> 32 & 2**32 - 1) * places >> 32


def copies(path):
    """The copies of a recording."""
    with open(path, "rb") as file:
        data = file.read()
    at, found = 16, []
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 19:
            place = at + 12
            for _ in range(struct.unpack_from("<I", data, at + 8)[0]):
                (bytes_,) = struct.unpack_from("<I", data, place + 24)
                found.append(data[place + 28 : place + 28 + bytes_])
                place += 28 + bytes_
        at += size + 12
    return found


def sizes(copy):
    """Bytes of the copied stacks, of the registers, and of the same words by the simplest coding."""
    pc, sp = struct.unpack_from("<QQ", copy, 2)
    at, tags = 26, copy[18:26]
    for register in range(15):
        tag = tags[register // 2] >> register % 2 * 4 & 15
        at = leb(copy, at)[1] if tag == 9 else at + tag
    registers, raw, simple = at, 0, 0
    near, place, met, followers, last = [pc] * 8, 0, {}, {}, pc
    for _ in range(copy[1]):
        number, at = leb(copy, at)
        word = (sp & ~7) + 8 * unzigzag(number)
        raw += min(word - (sp & ~7), 0)  # what lies below the stack pointer is none of the stack
        while True:
            token, at = copy[at], at + 1
            gap, low = token >> 4 & 7, token & 15
            if gap == 7:
                more, at = leb(copy, at)
                gap += more
            word, raw = word + 8 * gap, raw + 8 * gap
            if token < 128:
                number = low & 7
                if low & 8:
                    more, at = leb(copy, at)
                    number |= more << 3
                simple += length(2 * gap) + length(abs(word + 8 * unzigzag(number) - sp))
            elif low == 15:
                at = leb(copy, at)[1]
                simple += length(gap)
                break
            else:
                follower = in_table(last, 4096)
                if low == 8:
                    value = followers[follower]
                elif low > 8:
                    value, at = met[(low - 9) * 256 + copy[at]], at + 1
                else:
                    number, at = leb(copy, at)
                    distance = unzigzag(number)
                    value = near[low] + distance & 2**64 - 1
                    if abs(distance) < 1 << 20:
                        near[low] = value
                    else:
                        near[place], place = value, (place + 1) % 8
                    met[in_table(value, 1536)] = value
                followers[follower] = value
                simple += length(2 * gap + 1) + length(zigzag(value - last))
                last = value
            word, raw = word + 8, raw + 8
    assert at == len(copy), "a copy of another length"
    return raw, registers, simple


def mappings(pid):
    """Start, end and rights of each mapping."""
    with open(f"/proc/{pid}/maps") as maps:
        lines = [line.split(None, 2) for line in maps]
    return [(*(int(end, 16) for end in line[0].split("-")), line[1]) for line in lines]


def running(pid):
    """The threads that run, or all, if none does."""
    found = []
    for tid in map(int, os.listdir(f"/proc/{pid}/task")):
        with open(f"/proc/{pid}/task/{tid}/stat") as stat:
            found.append((stat.read().rsplit(")", 1)[1].split()[0] == "R", tid))
    return [tid for runs, tid in found if runs] or [tid for _, tid in found]


def raw_stack(pid):
    """The stack of a thread that runs, from its stack pointer on, and before it what the coder needs to know; None:
    the process has ended. A thread's stack ends where its mapping does, with the thread's own data."""
    try:
        tid = random.choice(running(pid))
    except (OSError, IndexError):
        return None
    if LIBC.ptrace(PTRACE_SEIZE, tid, 0, 0) < 0:
        return None
    LIBC.ptrace(PTRACE_INTERRUPT, tid, 0, 0)
    _, status = os.waitpid(tid, 0x40000000)
    if not os.WIFSTOPPED(status):
        return None
    registers = (ctypes.c_ulonglong * 27)()
    stack = None
    if LIBC.ptrace(PTRACE_GETREGS, tid, 0, registers) == 0:
        sp = registers[19] & ~7
        found = mappings(pid)
        end = next((end for start, end, _ in found if start <= sp < end), 0)
        if 0 < end - sp < 1 << 20:
            with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                memory.seek(sp)
                stack = memory.read(end - sp)
            code = [place for start, end, rights in found if "x" in rights and end < 1 << 47 for place in (start, end)]
            words = [registers[index] for index in DWARF] + [registers[16], len(code) // 2, *code, sp, len(stack) // 8]
            stack = struct.pack(f"{len(words)}Q", *words), stack
    LIBC.ptrace(PTRACE_DETACH, tid, 0, 0)
    return stack


def compressed(coder, program, wanted):
    """Mean bytes of raw stacks, and of each compressor's output, ours first."""
    stacks = []
    while len(stacks) < wanted:
        child = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(0.05)
        while len(stacks) < wanted:
            stack = raw_stack(child.pid)
            if stack is None:
                break
            stacks.append(stack)
            time.sleep(0.002 + random.random() * 0.01)
        child.kill()
        child.wait()
    total = sum(len(stack) for _, stack in stacks)
    input_ = b"".join(head + stack for head, stack in stacks)
    ours = [int(line) for line in subprocess.run([coder], input=input_, capture_output=True, check=True).stdout.split()]
    assert len(ours) == len(stacks), "stacks that were not coded"
    by = {"copy": sum(ours) / len(ours)}
    for tool, arguments in [("lz4", ["lz4", "-c"]), ("zstd", ["zstd", "-1", "-c"])]:
        if shutil.which(tool):
            out = [len(subprocess.run(arguments, input=stack, capture_output=True).stdout) for _, stack in stacks]
            by[tool] = (sum(out) - FRAMING[tool] * len(stacks)) / len(stacks)
    return total / len(stacks), by


SOURCE = "".join(
    f"int f{n}(int x){{int s=0;for(int i=0;i<x;i++){{s+=i*{n};"
    f"switch(s%7){{case 0:s++;break;case 3:s-=x;}}}}return s;}}\n"
    for n in range(3000)
)
RUST = "use std::collections::BTreeMap; fn main() { let mut m: BTreeMap<String, Vec<u64>> = BTreeMap::new(); \
for i in 0..9u64 { m.entry(format!(\"{i}\")).or_default().push(i); } println!(\"{m:?}\"); }"
PYTHON = "import json\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nfor _ in range(20):\n\
 d = {str(i): list(range(20)) for i in range(50)}\n for i in range(60): json.loads(json.dumps(d)); fib(15)\n"
QUERY = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 1500000) \
select count(*), sum(length(printf('%d-%d', x, x * x))) from c;"


def main():
    uu, coder, python = sys.argv[1:4]
    wanted = int(sys.argv[4]) if len(sys.argv) > 4 else 40
    folder = tempfile.mkdtemp(prefix="uu-copies-")
    source, rust, recording = (os.path.join(folder, name) for name in ("many.c", "small.rs", "recording.uu"))
    for path, text in [(source, SOURCE), (rust, RUST)]:
        with open(path, "w") as file:
            file.write(text)
    cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
    rustc = (
        subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True).stdout.strip() + "/bin/rustc"
    )
    programs = {
        "CPython": [python, "-c", PYTHON],
        "cc1": [cc1, "-quiet", "-O2", "-o", "/dev/null", source],
        "rustc": [rustc, "-O", "-o", os.path.join(folder, "small"), rust],
        "sqlite3": ["sqlite3", ":memory:", QUERY],
        "node": ["node", "-e", "let o=[];for(let i=0;i<90000;i++)o.push({a:i,b:String(i*7)});for(let i=0;i<9;i++)\
JSON.parse(JSON.stringify(o)).sort((x,y)=>x.b<y.b?-1:1)"],
    }
    print("| program | samples | raw | copy | smaller | without registers | simplest coding ", end="")
    print("| raw | copy | LZ4 | zstd -1 |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, program in programs.items():
        if not shutil.which(program[0]):
            print(f"{name}: not installed")
            continue
        command = [uu, "record", "-q", "-r", "999", "--unwind", "offline", "-o", recording, "--", *program]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        found = copies(recording)
        all_sizes = [sizes(copy) for copy in found]
        count = len(found)
        coded = sum(map(len, found)) / count
        raw, registers, simple = (sum(size[i] for size in all_sizes) / count for i in range(3))
        other, by = compressed(coder, program, wanted)
        smaller = {tool: f"{other / size:.1f}x" for tool, size in by.items()}
        print(
            f"| {name} | {count} | {raw:,.0f} B | {coded:,.0f} B | {raw / coded:.1f}x "
            f"| {coded - registers + 26:,.0f} B, {raw / (coded - registers + 26):.1f}x | {simple:,.0f} B "
            f"| {other:,.0f} B | {smaller['copy']} | {smaller.get('lz4')} | {smaller.get('zstd')} |",
            flush=True,
        )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
