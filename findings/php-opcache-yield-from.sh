#!/usr/bin/env bash
# With opcache, PHP's backtraces have the line after a `yield from` for the generator that waits there.
#
# Versions   PHP 8.2.36 (Debian 12: 8.2.36-1~deb12u1), x86-64
# Seen       `$x = yield from inner();` in line 9, and a call in line 10: while inner() runs, debug_backtrace() says that
#            it was called in line 9, and in line 10 with opcache.
# Cause      a generator that waits for another one is kept at the opcode after YIELD_FROM. That is the assignment, of the
#            same line, until the optimizer lets YIELD_FROM assign by itself.
# Matters    to whoever compares stacks of development with those of servers: a call that comes later seems to run, and
#            in a loop it may be one of the next turn. Profilers that read the opcode say the same as PHP.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download php8.2-cli=8.2.36-1~deb12u1 php8.2-common=8.2.36-1~deb12u1 php8.2-opcache=8.2.36-1~deb12u1 \
    libxml2=2.9.14+dfsg-1.3~deb12u6 libargon2-1=0~20171227-0.3+deb12u1 libsodium23=1.0.18-1+deb12u1 \
    libpcre2-8-0=10.42-1+deb12u2 libicu72=72.1-3+deb12u1
for package in *.deb; do dpkg -x "$package" unpacked; done
export LD_LIBRARY_PATH=$folder/unpacked/usr/lib/x86_64-linux-gnu

cat >program.php <<'CODE'
<?php
function inner() {
    yield 1;
    echo debug_backtrace()[0]['line'], "\n";
    return 2;
}

function outer() {
    $x = yield from inner();
    strtoupper($x);
    yield $x;
}
foreach (outer() as $value);
CODE
opcache=$(echo "$folder"/unpacked/usr/lib/php/*/opcache.so)
php() {
    unpacked/usr/bin/php8.2 -n -d zend_extension="$opcache" \
        -d opcache.file_update_protection=0 -d opcache.enable_cli="$1" program.php
}
without=$(php 0)
with=$(php 1)
echo "the line of outer(): $without, with opcache $with"
if [ "$without $with" != "9 10" ]; then
    echo "changed"
    exit 1
fi
