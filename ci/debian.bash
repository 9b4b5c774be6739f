# Sourced by the scripts in this folder that unpack packages of other Debian suites, after common.bash. The packages
# come from the mirror that apt is configured with, and are checked by apt as every package. Nothing is installed, and
# nothing of this machine's configuration is changed.

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Prints the mirror. Fails where apt has none.
debian_mirror() {
    local mirror=
    [ -r "$debian_keyring" ] && command -v apt-get >/dev/null || return 1
    mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Identifier: Packages' 2>/dev/null |
        sed -n 's/^Debian|Debian|//p' | sort -u | sed -n 1p)
    [ -n "$mirror" ] && echo "$mirror"
}

# apt with folders of its own, in WORK, and a limit of time: debian_apt WORK COMMAND ARGUMENT...
debian_apt() {
    local work=$1 command=$2 cpu
    shift 2
    cpu=$(cat "$work/cpu")
    timeout 900 "$command" -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null \
        -o APT::Architecture="$cpu" -o APT::Architectures="$cpu" -o APT::Sandbox::User="$(id -un)" \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# Reads a suite's index into WORK, which is made anew: debian_index WORK SUITE [CPU]. What fails is in WORK/log.
debian_index() {
    local work=$1 suite=$2 cpu=${3:-amd64} mirror
    rm -rf "$work"
    mkdir -p "$work"/{lists,cache,packages}
    if ! mirror=$(debian_mirror); then
        echo "apt has no Debian mirror here" >"$work/log"
        return 1
    fi
    echo "$cpu" >"$work/cpu"
    echo "deb [arch=$cpu signed-by=$debian_keyring] $mirror $suite main" >"$work/sources.list"
    debian_apt "$work" apt-get update >"$work/log" 2>&1 && [ -n "$(ls "$work"/lists/*Packages* 2>/dev/null)" ]
}

# Downloads packages into WORK/packages: debian_download WORK PACKAGE...
debian_download() {
    local work=$1
    shift
    (cd "$work/packages" && debian_apt "$work" apt-get download "$@" >>"$work/log" 2>&1)
}

# Unpacks them into a folder; further arguments are tar's: debian_unpack WORK FOLDER ARGUMENT...
debian_unpack() {
    local work=$1 folder=$2 file
    shift 2
    for file in "$work"/packages/*.deb; do
        dpkg-deb --fsys-tarfile "$file" | tar -x -C "$folder" "$@" || return 1
    done
}

# Lets links that the packages make for an installation lead into the folder instead: debian_links FOLDER
debian_links() {
    local folder=$1 link
    while IFS= read -r link; do
        [ ! -e "$folder$(readlink "$link")" ] || ln -sfn "$folder$(readlink "$link")" "$link"
    done < <(find "$folder" -type l -lname '/*')
}
