#!/usr/bin/env bash
# GNU addr2line names an inlined C++ function that has internal linkage like the function that it was inlined into.
#
# Versions   binutils 2.40-2, g++ 12.2.0-14+deb12u1 (Debian 12)
# Seen       `addr2line -f -i`, at an instruction of a static inline function, prints the caller's name twice. The
#            lines are right. The same source as C: the names are right.
# Cause      g++ gives such a function's abstract entry a DW_AT_name and no DW_AT_linkage_name (clang gives both).
#            For C++ addr2line then takes the name of the ELF symbol that covers the address instead.
# Matters    as an oracle for inlined functions: compare lines, or use another reader of DWARF for the names.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download g++-12=12.2.0-14+deb12u1 gcc-12=12.2.0-14+deb12u1 cpp-12=12.2.0-14+deb12u1 \
    binutils-x86-64-linux-gnu=2.40-2 libbinutils=2.40-2 libctf0=2.40-2 libctf-nobfd0=2.40-2 \
    libisl23=0.25-1.1 libmpc3=1.3.1-1 libmpfr6=4.2.0-1 libjansson4=2.14-2
for package in *.deb; do dpkg -x "$package" unpacked; done
export LD_LIBRARY_PATH=$folder/unpacked/usr/lib/x86_64-linux-gnu
tools=$folder/unpacked/usr/bin/x86_64-linux-gnu
compiler=$folder/unpacked/usr/lib/gcc/x86_64-linux-gnu/12

cat >program.c <<'CODE'
static inline __attribute__((always_inline)) int inner(int x) { volatile int y = x; return y * 3; }
__attribute__((noinline)) int outer(int x) { return inner(x) + 1; }
CODE
names() { # the compiler proper of a language -> the two names at the first instruction
    "$compiler/$1" -quiet -O1 -g program.c -o "$1.s"
    "$tools-as" "$1.s" -o "$1.o"
    "$tools-addr2line" -f -i -e "$1.o" 0 | sed -n '1p;3p' | paste -sd' '
}
plain=$(names cc1)
cpp=$(names cc1plus)
echo "compiled as C: $plain"
echo "compiled as C++: $cpp"
if [ "$plain" != "inner outer" ] || [ "$cpp" != "_Z5outeri _Z5outeri" ]; then
    echo "changed"
    exit 1
fi
