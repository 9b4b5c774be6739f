#!/usr/bin/env bash
# VmLib in /proc/PID/status counts the code of JITs, too, but none that can be written to.
#
# Versions   Linux 6.18; manpages 6.03-2 and python3 3.11 (Debian 12)
# Seen       A process maps 16 MiB of anonymous memory with read and execute rights: VmLib, the "Shared library code
#            size", grows by these 16 MiB. It maps as much that can be written to as well: VmLib stays, VmData grows.
# Cause      The kernel counts the pages of all mappings that can be executed and not written to (exec_vm), whatever they
#            are of, and shows what is left of it without the program's own text.
# Matters    to whoever reads it as the size of libraries: a JIT that keeps its code unwritable is in it. And it is of
#            use: it changes when a process makes memory executable, which VmSize does not show after mprotect(2).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get -qq download 'manpages=6.03-2'
dpkg -x manpages*.deb unpacked
zcat unpacked/usr/share/man/man5/proc.5.gz | grep -A 2 VmLib | tr -d '\\*\n' | grep -o 'Shared library code size' >said

/usr/bin/python3 - <<'CODE' >>said
import mmap

def sizes():
    lines = (line.split() for line in open("/proc/self/status"))
    return {words[0][:-1]: int(words[1]) for words in lines if words[0] in ("VmLib:", "VmData:")}

kept = []
for name, rights in [("read, execute", mmap.PROT_READ), ("write, too", mmap.PROT_READ | mmap.PROT_WRITE)]:
    before = sizes()
    kept.append(mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, rights | mmap.PROT_EXEC))
    grown = {key: round((value - before[key]) / 1024) for key, value in sizes().items()}
    print(name, "VmLib", grown["VmLib"], "VmData", grown["VmData"])
CODE
cat said
cat >expected <<'END'
Shared library code size
read, execute VmLib 16 VmData 0
write, too VmLib 0 VmData 16
END
cmp said expected || {
    echo "changed"
    exit 1
}
