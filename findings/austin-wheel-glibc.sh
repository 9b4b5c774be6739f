#!/usr/bin/env bash
# austin-dist's wheel is tagged manylinux_2_12 and holds a program that needs glibc 2.38.
#
# Versions   austin-dist 4.0.0 (PyPI), x86-64
# Seen       pip installs it on glibc 2.36 (Debian 12) without a word; `austin` then ends before it begins, with the
#            dynamic loader's "version `GLIBC_2.38' not found". The wheel's own tags promise glibc 2.12.
# Matters    to whoever compares profilers on Debian 12, Ubuntu 22.04, RHEL 9 or in manylinux containers: the austin
#            that pip gives does not run there. Distribution packages of austin do.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip download -q --no-deps --only-binary :all: --platform manylinux2010_x86_64 austin-dist==4.0.0
wheel=$(ls austin_dist-4.0.0-*.whl)
python3 -m zipfile -e "$wheel" content
program=$(find content -type f -name austin | head -n 1)
needed=$(readelf -VW "$program" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
echo "$wheel: $program needs $needed"
if [[ $wheel != *manylinux_2_12_x86_64* ]] || [ "$needed" != GLIBC_2.38 ]; then
    echo "changed"
    exit 1
fi
