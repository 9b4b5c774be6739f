#!/usr/bin/env bash
# OpenSSL's sha1_multi_block describes its second push as another one of the first register.
#
# Versions   OpenSSL 3.0.22-1~deb12u2 (Debian 12), x86-64; binutils 2.40
# Seen       sha1_multi_block pushes rbx and rbp, and then uses rbp for a table. Its unwind information says that rbx is
#            where rbp was pushed, and that rbp is untouched: a caller's rbx becomes its rbp, and its rbp the address of a
#            table. The variants of the same file for other processors (shaext, avx) describe both pushes.
# Cause      crypto/sha/asm/sha1-mb-x86_64.pl says of the second push, by .cfi_push, that it is of rbx.
# Matters    to unwinders that restore registers by rules: the caller is found, and where its own CFA is made of rbp or
#            rbx, the stack ends or goes wrong there.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get -qq download 'libssl-dev=3.0.22-1~deb12u2'
dpkg -x libssl-dev*.deb unpacked
object=libcrypto-lib-sha1-mb-x86_64.o
ar x unpacked/usr/lib/x86_64-linux-gnu/libcrypto.a $object

# The first pushes of a function, and where its unwind information has rbx and rbp after them, relative to the CFA.
described() {
    local start rows
    start=$(nm $object | awk -v name="$1" '$3 == name { print $1 }')
    objdump -d --no-show-raw-insn --start-address="0x$start" $object | awk '/push/ { print $2, $3 }' | head -n 2 | xargs
    rows=$(readelf --debug-dump=frames-interp $object | sed -n "/pc=$start\.\./,/^\$/p")
    # The row whose CFA is no register's: that of the body.
    echo "$rows" | awk '/LOC/ { for (i = 1; i <= NF; i++) column[$i] = i }
        $2 == "exp" || /rax\+8/ { last = "rbx " $column["rbx"] ", rbp " $column["rbp"] } $2 == "exp" { exit }
        END { print last }'
}
said=$(for function in sha1_multi_block sha1_multi_block_avx; do
    echo "$function: $(described $function | paste -sd ':')"
done)
uses=$(objdump -d --no-show-raw-insn --start-address=0x23 --stop-address=0x40 $object | grep -o 'lea .*,%rbp' || true)
said+=$'\n'"sha1_multi_block: ${uses/  */ ...},%rbp"
echo "$said"
expected='sha1_multi_block: push %rbx push %rbp:rbx c-24, rbp u
sha1_multi_block_avx: push %rbx push %rbp:rbx c-16, rbp c-24
sha1_multi_block: lea ...,%rbp'
if [ "$said" != "$expected" ]; then
    echo "changed"
    exit 1
fi
