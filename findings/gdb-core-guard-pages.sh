#!/usr/bin/env bash
# gdb's core files have zeros in place of up to a megabyte around a guard page that madvise has made.
#
# Versions   gdb 13.1-3 (Debian 12), Linux 6.18
# Seen       MADV_GUARD_INSTALL (Linux 6.13) makes a page of a mapping unreadable without splitting the mapping. The
#            core file that `generate-core-file` writes has the mapping, but zeros where other pages of it, near that
#            one, have data. gdb says "Memory read failed for corefile section" and ends with success.
# Cause      gdb reads memory by a megabyte, from the mapping's start on, and leaves out all of such a piece if a read of
#            it fails in any place.
# Matters    since glibc 2.42 each thread's stack has such a guard page: the stacks of some threads of a core file are
#            zeros, and debuggers, crash reporters and profilers show those threads with one frame.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download gdb-minimal=13.1-3 libipt2=2.0.5-1 libreadline8=8.2-1.3 libncursesw6=6.4-4 libtinfo6=6.4-4 \
    libmpfr6=4.2.0-1 libxxhash0=0.8.1-1 libdebuginfod1=0.188-2.1
for package in *.deb; do dpkg -x "$package" unpacked; done
export LD_LIBRARY_PATH=$folder/unpacked/usr/lib/x86_64-linux-gnu:$folder/unpacked/lib/x86_64-linux-gnu

# A stack as glibc 2.42 makes one: a guard page first, and data at the end.
cat >program.c <<'CODE'
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    char *stack = mmap(0, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(stack + (256 << 10) - 64, "the caller's frame");
    if (madvise(stack, 4096, 102 /* MADV_GUARD_INSTALL */)) return puts("no guard pages"), 1;
    printf("%p\n", stack + (256 << 10) - 64);
    fflush(stdout);
    sleep(60);
    return 0;
}
CODE
gcc -o program program.c
./program >said &
program=$!
trap 'kill -9 "$program"; rm -rf "$folder"' EXIT
until [ -s said ]; do sleep 0.01; done
address=$(cat said)
if [[ $address != 0x* ]]; then
    echo "this kernel has no MADV_GUARD_INSTALL: Linux 6.13 has"
    exit 1
fi
running=$(unpacked/usr/bin/gdb -nx -batch -ex "x/s $address" -ex 'generate-core-file core' -p "$program" 2>&1)
core=$(unpacked/usr/bin/gdb -nx -batch -ex "x/s $address" program core 2>&1)
grep -E "^$address|corefile" <<<"$running"
grep -E "^$address" <<<"$core"
if ! grep -q "^$address.*the caller's frame" <<<"$running" || ! grep -q "^$address.*\"\"" <<<"$core"; then
    echo "changed"
    exit 1
fi
