#!/usr/bin/env bash
# libgcrypt's SM3 for AVX describes the registers that it saves as saved in its callers' frames.
#
# Versions   libgcrypt 1.10.1-3+deb12u1 (Debian 12), x86-64; binutils 2.40
# Seen       _gcry_sm3_transform_amd64_avx_bmi2 makes rbp its frame pointer, aligns the stack pointer, and saves rbx and
#            r12 to r15 at 192 to 224 bytes above the stack pointer. Its unwind information says that they are 176 to 208
#            bytes above the CFA: there is a caller's frame.
# Cause      The offsets are given by .cfi_rel_offset, which counts from the register that the CFA counts from. That is
#            rbp by then; the offsets are those from rsp, which no .cfi_offset can express once it is aligned.
# Matters    to unwinders that restore registers by rules: five registers of the caller become words of frames further
#            out, and a caller whose CFA is made of one of them is lost, or a wrong frame follows. An unwinder that
#            expects saved registers below the CFA can tell.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get -qq download 'libgcrypt20-dev=1.10.1-3+deb12u1'
dpkg -x libgcrypt20-dev*.deb unpacked
object=$(ar t unpacked/usr/lib/x86_64-linux-gnu/libgcrypt.a | grep 'sm3-avx-bmi2-amd64.o$')
ar x unpacked/usr/lib/x86_64-linux-gnu/libgcrypt.a "$object"

nm "$object" | awk '$2 == "T" { print $3 }' >said
objdump -d --no-show-raw-insn "$object" |
    sed -nE 's/.*(and|mov) +(\$0xffffffffffffffc0,%rsp|%rsp,%rbp|%(rbx|r1[2-5]),0x[0-9a-f]+\(%rsp\)).*/\1 \2/p' |
    awk 'NR <= 7' >>said
# The row of the function's body: that in which most registers are saved.
readelf --debug-dump=frames-interp "$object" |
    awk '/LOC/ { split($0, name) } $2 == "rbp+16" && !/ u / { for (i = 2; i <= NF; i++) printf "%s %s%s", name[i], $i, i < NF ? " " : "\n"
        exit }' >>said
cat said
cat >expected <<'END'
_gcry_sm3_transform_amd64_avx_bmi2
mov %rsp,%rbp
and $0xffffffffffffffc0,%rsp
mov %rbx,0xc0(%rsp)
mov %r15,0xc8(%rsp)
mov %r14,0xd0(%rsp)
mov %r13,0xd8(%rsp)
mov %r12,0xe0(%rsp)
CFA rbp+16 rbx c+176 rbp c-16 r12 c+208 r13 c+200 r14 c+192 r15 c+184 ra c-8
END
cmp said expected || {
    echo "changed"
    exit 1
}
