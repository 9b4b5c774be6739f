# Shared by the scripts in this folder: where the project is, and how they speak. Sourced, not run.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
export CARGO_TARGET_DIR=$target

# A heading, so that a long log can be read.
say() { printf '\n== %s\n' "$*"; }

# Prints a command, then runs it.
run() {
    printf '+ %s\n' "$*"
    "$@"
}

# Stops with a message.
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}
