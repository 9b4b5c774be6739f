#!/usr/bin/env bash
# Programs that musl-gcc links have unwind information that nobody finds: its specs leave --eh-frame-hdr out.
#
# Versions   musl-tools 1.2.3-1 (Debian 12), x86-64; gcc 12.2.0, binutils 2.40
# Seen       A program of musl-gcc has .eh_frame, and neither .eh_frame_hdr nor a PT_GNU_EH_FRAME segment; gcc's own has
#            both. With -Wl,--eh-frame-hdr it has them, too. dl_iterate_phdr(3), which unwinders ask, has no table then.
# Cause      gcc passes --eh-frame-hdr by its *link: spec, which musl-gcc.specs replaces.
# Matters    to unwinders that look for unwind information by dl_iterate_phdr (libgcc's, libunwind, framehop): stacks
#            end at the first function of such a program, although it describes itself. The section headers of its file
#            lead to .eh_frame; in memory nothing does.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get -qq download musl=1.2.3-1 musl-dev=1.2.3-1 musl-tools=1.2.3-1
for package in *.deb; do dpkg -x "$package" unpacked; done
root=$folder/unpacked
sed "s,/usr/,$root/usr/,g; s,/lib/ld-musl,$root/lib/ld-musl,g" "$root/usr/lib/x86_64-linux-musl/musl-gcc.specs" >specs
musl=(-specs specs -L"$root/lib/x86_64-linux-musl")

cat >program.c <<'CODE'
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
static int look(struct dl_phdr_info *object, size_t size, void *data) {
    int has = 0;
    (void)size, (void)data;
    for (int i = 0; i < object->dlpi_phnum; i++)
        has |= object->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME;
    printf("%s", has ? "a table" : "no table");
    return 1; /* The first object is the program. */
}
int main(void) { return dl_iterate_phdr(look, NULL) != 1; }
CODE

# What a program has: its sections, and what it finds of itself.
has() {
    gcc -o program program.c "$@"
    echo "$(readelf -SW program | grep -o '\.eh_frame[_a-z]*' | sort | xargs): $(./program)"
}
said="gcc: $(has)
musl-gcc: $(has "${musl[@]}")
musl-gcc -Wl,--eh-frame-hdr: $(has "${musl[@]}" -Wl,--eh-frame-hdr)"
echo "$said"
expected='gcc: .eh_frame .eh_frame_hdr: a table
musl-gcc: .eh_frame: no table
musl-gcc -Wl,--eh-frame-hdr: .eh_frame .eh_frame_hdr: a table'
if [ "$said" != "$expected" ]; then
    echo "changed"
    exit 1
fi
