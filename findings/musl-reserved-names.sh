#!/usr/bin/env bash
# musl's loader takes any library whose name begins with libc., libm., libdl. and the like for itself.
#
# Versions   musl 1.2.3-1 (Debian 12), x86-64; gcc 12.2.0
# Seen       dlopen("libm.extra.so") succeeds and returns musl itself, whatever lies in LD_LIBRARY_PATH, and so does
#            dlopen("libc.no-such-file"). A program that is linked with a libc.utils.so ends with "symbol not found".
#            By a path with a slash, and under a name such as libn.extra.so, the same file is loaded.
# Cause      load_library() of ldso/dynlink.c compares names without a slash with c, pthread, rt, m, dl, util and xnet
#            after "lib", up to the first dot.
# Matters    to whoever preloads or injects libraries by name, or reads which objects a process should have: a name in
#            DT_NEEDED need not be the name of an object that is loaded.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get -qq download musl=1.2.3-1 musl-dev=1.2.3-1 musl-tools=1.2.3-1
for package in *.deb; do dpkg -x "$package" unpacked; done
root=$folder/unpacked
sed "s,/usr/,$root/usr/,g; s,/lib/ld-musl,$root/lib/ld-musl,g" "$root/usr/lib/x86_64-linux-musl/musl-gcc.specs" >specs
build() { gcc -specs specs -L"$root/lib/x86_64-linux-musl" "$@"; }

cat >mine.c <<'CODE'
int mine(void) { return 7; }
CODE
cat >opens.c <<'CODE'
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(names[i], RTLD_NOW);
        int (*mine)(void) = library ? (int (*)(void))dlsym(library, "mine") : NULL;
        printf("%s: %s, %s\n", names[i], library ? "opened" : "not opened", mine ? "mine" : "another");
    }
    return 0;
}
CODE
cat >linked.c <<'CODE'
int mine(void);
int main(void) { return mine() != 7; }
CODE
mkdir libraries
build -shared -fPIC -o libraries/libm.extra.so mine.c
cp libraries/libm.extra.so libraries/libn.extra.so
cp libraries/libm.extra.so libraries/libc.utils.so
build -o opens opens.c
said=$(LD_LIBRARY_PATH=$folder/libraries ./opens libn.extra.so libm.extra.so libc.no-such-file ./libraries/libm.extra.so)
for name in libn.extra.so libc.utils.so; do
    build -o linked linked.c -Llibraries "-l:$name" -Wl,-rpath,"$folder/libraries"
    code=0
    ./linked 2>errors || code=$?
    said+=$(printf '\n%s' "linked with $name: exit code $code $(grep -o 'mine: symbol not found' errors || true)")
done
echo "$said"
expected='libn.extra.so: opened, mine
libm.extra.so: opened, another
libc.no-such-file: opened, another
./libraries/libm.extra.so: opened, mine
linked with libn.extra.so: exit code 0 
linked with libc.utils.so: exit code 127 mine: symbol not found'
if [ "$said" != "$expected" ]; then
    echo "changed"
    exit 1
fi
