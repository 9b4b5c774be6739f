#!/usr/bin/env bash
# glibc's multiplications of long numbers push two registers that their unwind information does not know of.
#
# Versions   glibc 2.36-9+deb12u14 (Debian 12), x86-64; gdb 13.1-3, binutils 2.40
# Seen       __mpn_addmul_1 and __mpn_submul_1 begin with push %rbx and push %rbp. Their FDEs have no instruction, so that
#            CFA = rsp + 8 from the first byte to the last. Interrupted behind the pushes, gdb takes the saved rbp for the
#            caller's address, and shows two frames that never were.
# Cause      sysdeps/x86_64/addmul_1.S is assembly with cfi_startproc and cfi_endproc, and nothing between them.
# Matters    to whoever samples programs that print or read long doubles, or doubles with many digits: a walk by
#            .eh_frame leaves the stack there, one that checks return addresses ends.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download libc6-dev=2.36-9+deb12u14 gdb-minimal=13.1-3 libipt2=2.0.5-1 libreadline8=8.2-1.3 \
    libncursesw6=6.4-4 libtinfo6=6.4-4 libmpfr6=4.2.0-1 libxxhash0=0.8.1-1 libdebuginfod1=0.188-2.1
for package in *.deb; do dpkg -x "$package" unpacked; done
lib=$folder/unpacked/usr/lib/x86_64-linux-gnu

cat >program.c <<'CODE'
#include <stdio.h>
#include <stdlib.h>
int convert(const char *text) { char out[400]; return snprintf(out, sizeof out, "%.60Lf", strtold(text, NULL)); }
int main(void) { return convert("1.2345678901234567890123456789012345678901234567890e-30") == 0; }
CODE
gcc -O1 -static -L"$lib" -B"$lib" -o program program.c

for function in __mpn_addmul_1 __mpn_submul_1; do
    start=$(nm program | awk -v name="$function" '$3 == name { print $1 }')
    code=$(objdump -d --no-show-raw-insn --start-address="0x$start" --stop-address="$((0x$start + 2))" program)
    described=$(readelf --debug-dump=frames program | sed -n "/pc=$start\.\./,/^\$/p" | tail -n +2 | tr -d ' \n')
    echo "$function: $(grep -c push <<<"$code") pushes, described as: ${described:-nothing}"
    if [ "$(grep -c push <<<"$code")" != 2 ] || [ -n "${described//DW_CFA_nop/}" ]; then
        echo "changed"
        exit 1
    fi
done
said=$(LD_LIBRARY_PATH=$lib:$folder/unpacked/lib/x86_64-linux-gnu unpacked/usr/bin/gdb -nx -batch \
    -ex 'break *(__mpn_submul_1 + 2)' -ex run -ex backtrace ./program 2>&1)
grep '^#' <<<"$said"
if ! grep -Eq '^#1 +0x[0-9a-f]+ in \?\? \(\)' <<<"$said"; then
    echo "changed"
    exit 1
fi
