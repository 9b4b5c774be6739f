#!/usr/bin/env bash
# GCC with -flto and -gsplit-dwarf writes split units whose references to other units are all null.
#
# Versions   gcc 12.2.0 (Debian 12), binutils 2.40
# Seen       each DW_AT_abstract_origin of a function or an inlined one in a.ltrans0.ltrans.dwo is 0, so that it has no
#            name: addr2line has no lines there, and llvm-symbolizer shows "??" for inlined functions.
# Cause      the functions are described by units in the program, which the .dwo refers to by relocations. `objcopy
#            --extract-dwo` makes the file and drops them (a .dwo has none, DWARF 5, 7.3.2), and a reference from a split
#            unit to a unit in another file has no form at all. The compiler says "-gsplit-dwarf is not supported with
#            LTO, disabling", but the step at link time, which gets the option too, does not.
# Matters    to whoever reads split debug information: the names cannot be recovered, and a line of the skeleton may be
#            an inlined function's. Leave -gsplit-dwarf out when linking.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >a.c <<'CODE'
extern double other(double);
static inline double twice(double x) { return other(x) * 2; }
int main(int argc, char **argv) { (void)argv; return twice(argc) > 3; }
CODE
echo 'double other(double x) { for (int i = 0; i < 10; i++) x = x * 1.5 + i; return x; }' >b.c
gcc -O2 -g -flto -gsplit-dwarf -o a a.c b.c
origins=$(readelf --debug-dump=info a.ltrans0.ltrans.dwo 2>/dev/null | sed -n 's/.*DW_AT_abstract_origin: //p' | sort | uniq -c)
echo "references by DW_AT_abstract_origin in the split unit:"
echo "$origins"
if [ -z "$origins" ] || grep -qv '<0>$' <<<"$origins"; then
    echo "changed"
    exit 1
fi
