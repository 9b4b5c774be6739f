# Shared by the scripts in this folder: the project's folder, and functions for messages. Sourced, not run.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
export CARGO_TARGET_DIR=$target

# Prints a heading, which structures a long log, and when: minutes and seconds since the first script began.
export UU_CI_BEGAN=${UU_CI_BEGAN:-$(date +%s)}
say() {
    local past=$(($(date +%s) - UU_CI_BEGAN))
    printf '\n== %s (at %d:%02d)\n' "$*" $((past / 60)) $((past % 60))
}

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

# Prints the linker's option, beside -z noseparate-code, that puts read-only data and code into one segment:
# one_segment [CARGO-ARGUMENT...]. So each signal object that a recorded program opens costs one mapping, and a few page
# faults, less.
one_segment() {
    local folder
    # GNU's linker needs none, which is the usual one for another architecture.
    [[ " $* " != *" --target "* ]] || return 0
    folder=$(mktemp -d)
    # LLVM's.
    if rustc --crate-type cdylib -C link-arg=-Wl,--no-rosegment -o "$folder/none.so" - </dev/null \
        >"$folder/said" 2>&1; then
        echo -Wl,--no-rosegment
    fi
    rm -r "$folder"
}

# The languages whose unwinders are rooms of the project, one a line: the folders LANGUAGE-unwinder.
languages() {
    local folder
    for folder in "$root"/*-unwinder; do
        folder=${folder##*/}
        echo "${folder%-unwinder}"
    done
}

# The oldest glibc that what is shipped runs with: what README.md says under "What it supports".
oldest_glibc() {
    local version
    version=$(sed -n 's/.*glibc \([0-9.]*\) or later.*/\1/p' "$root/README.md" | head -n 1)
    [ -n "$version" ] || die "README.md does not say which glibc is needed"
    echo "$version"
}

# Makes the libraries of that glibc that objects are linked with, and prints their folder: older_glibc. Another
# architecture's objects are linked with what its compiler has.
older_glibc() {
    local version sum folder
    version=$(oldest_glibc)
    # By what makes it and where, which its linker scripts hold: cargo links again when the folder's name changes.
    sum=$({ echo "$target" && cat "$root/packages/older_glibc.py"; } | sha256sum)
    folder=$target/older-glibc/$version-${sum:0:12}
    if [ ! -e "$folder/functions.o" ]; then
        python3 "$root/packages/older_glibc.py" "$version" "$folder"
    fi
    echo "$folder"
}

# Builds a signal object: signal_object PACKAGE SONAME [CARGO-ARGUMENT...] [-- LINK-ARGUMENT...]
#
# Only as a cdylib: cargo does no link-time optimization for a crate that is also built as an rlib. The object needs
# libc only, and of it what the oldest glibc has there; it is bound at load, and has no undefined symbols. The linker's
# arguments are here and not in build scripts, because cargo passes those of a dependency on to every cdylib that
# depends on it. -Bsymbolic-functions binds an object's functions to itself: else a program that defines the same ones,
# such as sigaction, would be called by ours, and call them again.
# With $UU_VERSION_SCRIPT, ci/link-versioned links.
signal_object() {
    local package=$1 soname=$2 cargo=() link=() argument sum older=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        cargo+=("$1")
        shift
    done
    [ $# -eq 0 ] || shift
    [[ " ${cargo[*]} " == *" --target "* ]] || older=("-L$(older_glibc)")
    for argument in "${older[@]}" -nostartfiles -Wl,-z,defs -Wl,-z,now -Wl,-Bsymbolic-functions -Wl,-z,noseparate-code \
        $(one_segment "${cargo[@]}") "-Wl,-soname,$soname" "$@" -Wl,--as-needed -lc; do
        link+=(-C "link-arg=$argument")
    done
    if [ -n "${UU_VERSION_SCRIPT-}" ]; then
        sum=$(sha256sum "$UU_VERSION_SCRIPT")
        link+=(-C "linker=$root/ci/link-versioned" -C "link-arg=--uu-versions=$UU_VERSION_SCRIPT@${sum%% *}")
    fi
    run cargo rustc --locked --profile dso -p "$package" --lib --crate-type cdylib "${cargo[@]}" -- "${link[@]}"
}

# Builds the object that is mapped into running processes: injected_object PACKAGE SONAME
#
# No dynamic loader ever sees it, so it needs nothing, not even libc, and binds all its symbols to itself.
injected_object() {
    local package=$1 soname=$2 link=() argument
    for argument in -nostartfiles -nostdlib -Wl,-z,defs -Wl,-z,now -Wl,-Bsymbolic "-Wl,-soname,$soname" \
        -Wl,--as-needed; do
        link+=(-C "link-arg=$argument")
    done
    run cargo rustc --locked --profile dso -p "$package" --lib --crate-type cdylib -- "${link[@]}"
}

# Builds a static library of a signal object: static_library PACKAGE FILE [--target TRIPLE]
#
# It has the one object that link-time optimization made of the package and of what it needs, with uu.h's symbols only.
# What the compiler calls besides (__udivti3) is in libgcc, which every program is linked with.
static_library() {
    local package=$1 file=$2 crate member folder built=$target/dso objcopy=objcopy
    shift 2
    if [ $# -gt 0 ]; then
        built=$target/$2/dso
        objcopy=${2/-unknown/}-objcopy
    fi
    crate=${package//-/_}
    run cargo rustc --locked --profile dso -p "$package" --lib --crate-type staticlib --features static "$@"
    # All of ar's output is read: a reader that stops early would end it by SIGPIPE.
    member=$(ar t "$built/lib$crate.a" | grep "^$crate-.*\.o$")
    member=${member%%$'\n'*}
    folder=$(mktemp -d)
    ar p "$built/lib$crate.a" "$member" >"$folder/whole.o"
    "$objcopy" -w --strip-debug --localize-symbol='uu_protected_*' "$folder/whole.o" "$folder/libuunwind.o"
    rm -f "$file"
    ar rcsD "$file" "$folder/libuunwind.o"
    rm -r "$folder"
}
