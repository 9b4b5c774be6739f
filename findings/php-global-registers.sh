#!/usr/bin/env bash
# PHP's interpreter loop changes two callee-saved registers that its unwind information says it leaves alone.
#
# Versions   PHP 8.2.36-1~deb12u1 (Debian 12, php8.2-cli), x86-64, compiled by GCC; binutils 2.40
# Seen       execute_ex saves r14 and r15 on its stack and gives them other values: the current frame of PHP and the
#            current instruction. The rows of its unwind information save rbx, rbp, r12 and r13 and say nothing of r14
#            and r15, so that these count as unchanged (System V ABI for AMD64: callee-saved).
# Cause      Both are global register variables, which a compiler neither saves nor describes. PHP saves and restores
#            them itself, as variables of execute_ex, so that its callers do not notice.
# Matters    to unwinders that restore registers: all callers of execute_ex seem to have PHP's values in r14 and r15. A
#            debugger shows wrong variables of theirs, and a frame whose CFA is made of one of them is lost.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get -qq download 'php8.2-cli=8.2.36-1~deb12u1'
dpkg -x php8.2-cli*.deb unpacked
php=unpacked/usr/bin/php8.2
start=$(nm -D "$php" | awk '$3 == "execute_ex" { print $1 }')

objdump -d --no-show-raw-insn --start-address="0x$start" --stop-address="$(printf '%#x' $((0x$start + 0x32)))" "$php" |
    sed -nE 's/.*mov +(%r1[45],0x[0-9a-f]+\(%rsp\)|[^ ]+,%r1[45])$/mov \1/p' >said
# The row of the function's body.
readelf --debug-dump=frames-interp "$php" | sed -n "/pc=$start/,/^$/p" |
    awk '/LOC/ { split($0, name) } $2 == "rsp+160" { for (i = 2; i <= NF; i++) printf "%s %s%s", name[i], $i,
        i < NF ? " " : "\n"; exit }' >>said
cat said
cat >expected <<'END'
mov %r14,0x48(%rsp)
mov %rdi,%r14
mov %r15,0x40(%rsp)
mov (%rdi),%r15
CFA rsp+160 rbx c-40 rbp c-32 r12 c-24 r13 c-16 ra c-8
END
cmp said expected || {
    echo "changed"
    exit 1
}
