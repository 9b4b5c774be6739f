#!/usr/bin/env bash
# gdb takes a process whose main thread has called pthread_exit for dead, although its other threads work on.
#
# Versions   gdb 13.1-3 (Debian 12), Linux 6.18
# Seen       `gdb -p PID` says "the process has already terminated" and attaches to no thread; so does gcore. The
#            process has another thread, which runs.
# Cause      the kernel shows the state of the main thread, a zombie, as that of the process, and lets nobody trace that
#            thread. /proc/PID/task/TID of the other thread has everything, and it can be traced.
# Matters    to whoever asks /proc/PID alone, as most tools that attach do: maps, exe and mem are empty or missing there.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download gdb-minimal=13.1-3 libipt2=2.0.5-1 libreadline8=8.2-1.3 libncursesw6=6.4-4 libtinfo6=6.4-4 \
    libmpfr6=4.2.0-1 libxxhash0=0.8.1-1 libdebuginfod1=0.188-2.1
for package in *.deb; do dpkg -x "$package" unpacked; done
export LD_LIBRARY_PATH=$folder/unpacked/usr/lib/x86_64-linux-gnu:$folder/unpacked/lib/x86_64-linux-gnu

cat >program.c <<'CODE'
#include <pthread.h>
#include <unistd.h>
static void *work(void *unused) { sleep(60); return unused; }
int main(void) { pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_exit(0); }
CODE
gcc -o program program.c -pthread
./program &
program=$!
trap 'kill -9 "$program"; rm -rf "$folder"' EXIT
until grep -q '^State:.*zombie' "/proc/$program/status"; do sleep 0.01; done
said=$(unpacked/usr/bin/gdb -nx -batch -ex 'info threads' -p "$program" 2>&1 || true)
echo "$said"
echo "threads of the process: $(find "/proc/$program/task" -maxdepth 1 -mindepth 1 | wc -l)"
if [[ $said != *"is a zombie - the process has already terminated"* ]] || [[ $said != *"No threads."* ]]; then
    echo "changed"
    exit 1
fi
