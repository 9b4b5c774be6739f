#!/usr/bin/env bash
# Perl's functions that run its operations have no names any more in a stripped libperl: a profiler shows their addresses
# without a function, or the nearest one before.
#
# Versions   libperl5.36 5.36.0 (Debian 12), libperl5.40 5.40.1-6+deb13u1 (Debian 13)
# Seen       libperl.so.5.36 exports 307 functions Perl_pp_* (Perl_pp_entersub, Perl_pp_match, ...), libperl.so.5.40 none
#            of them. Both export Perl_runops_standard, which calls them, and PL_ppaddr, the table of their addresses.
# Cause      5.40's pp_proto.h, in the same package, declares all of them hidden; Debian's libraries have no .symtab.
# Matters    names of these functions by the dynamic symbols alone: 5.40 needs the debug package, or PL_ppaddr with
#            PL_op_name, which are both exported.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Identifier: Packages' |
    sed -n 's/^Debian|Debian|//p' | sort -u | sed -n 1p)

# suite package: unpacks it into a folder of that name
unpack() {
    local work=$folder/$1
    mkdir -p "$work/lists" "$work/cache"
    echo "deb [arch=amd64 signed-by=$keyring] $mirror $1 main" >"$work/sources.list"
    local apt=(apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=-
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null
        -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    "${apt[@]}" update
    (cd "$work" && "${apt[@]}" download "$2" && dpkg -x ./*.deb unpacked)
}
exported() { # suite version pattern -> number of exported names
    nm -D --defined-only "$folder/$1/unpacked/usr/lib/x86_64-linux-gnu/libperl.so.$2" |
        sed 's/@.*//; s/.* //' | grep -cE "^($3)\$" || true
}
unpack bookworm libperl5.36
unpack trixie libperl5.40=5.40.1-6+deb13u1
old=$(exported bookworm 5.36 'Perl_pp_.*')
new=$(exported trixie 5.40 'Perl_pp_.*')
rest=$(exported trixie 5.40 'Perl_runops_standard|PL_ppaddr|PL_op_name')
hidden=$(grep -c 'PP(pp_.*"hidden"' "$folder"/trixie/unpacked/usr/lib/*/perl/5.40.1/CORE/pp_proto.h || true)
echo "functions of operations exported: 5.36 $old, 5.40 $new (declared hidden: $hidden); loop and tables: $rest"
if [ "$old $new $rest" != "307 0 3" ] || [ "$hidden" -lt 300 ]; then
    echo "changed"
    exit 1
fi
