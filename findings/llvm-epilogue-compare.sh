#!/usr/bin/env bash
# LLVM's rows stay 8 bytes behind where a comparison stands between the end of a frame and the pops.
#
# Versions   librsvg2-2 2.54.7+dfsg-1~deb12u1 (Debian 12; Rust, which LLVM it was built with is not in the file), binutils 2.40
# Seen       218 places have "add $8,%rsp; test; je; pop; pop" in an epilogue. The row behind the addition begins at
#            the first pop, and not at the test: for two instructions the CFA is rsp + 32 where rsp + 24 is true.
# Cause      the two epilogues of a branch share the addition, which is placed before the comparison; the note on the CFA
#            stays with the pops.
# Matters    to whoever walks from an interrupted instruction: the word above the return address is taken for it. Such a
#            stack ends, or goes on wrongly, in code of which every other row is right; calls are not affected.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download librsvg2-2=2.54.7+dfsg-1~deb12u1
dpkg -x librsvg2-2*.deb unpacked
library=$(echo unpacked/usr/lib/x86_64-linux-gnu/librsvg-2.so.2.*)

cat >late.py <<'CODE'
"""Places behind `add $8,%rsp`, a comparison and a jump, whose row is still that of before the addition."""
import bisect, re, subprocess, sys

frames = subprocess.run(["readelf", "--debug-dump=frames-interp", sys.argv[1]], capture_output=True, text=True).stdout
rows = sorted((int(m[1], 16), int(m[2])) for m in re.finditer(r"^([0-9a-f]{16}) rsp\+(\d+)\s", frames, re.M))
starts = [start for start, _ in rows]
row = lambda at: rows[bisect.bisect_right(starts, at) - 1][1]
code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", sys.argv[1]], capture_output=True, text=True).stdout
lines = [(int(m[1], 16), m[2]) for m in re.finditer(r"^ +([0-9a-f]+):\t(.*)$", code, re.M)]
late = []
for (at, add), (test, compares), (_, jumps), (pop, pops) in zip(lines, lines[1:], lines[2:], lines[3:]):
    ends = add.split() == ["add", "$0x8,%rsp"] and pops.startswith("pop")
    if ends and compares.split()[0] in ("test", "cmp") and jumps.startswith("j") and row(at) == row(test) == row(pop) + 8:
        late.append(f"{at:x}: {add} | {compares} | {jumps} | {pops}: CFA rsp+{row(at)}, {row(test)}, ..., {row(pop)}")
print(*late[:3], sep="\n")
print(len(late))
CODE
said=$(python3 late.py "$library")
echo "$said"
if [ "$(tail -n 1 <<<"$said")" != 218 ]; then
    echo "changed"
    exit 1
fi
