#!/usr/bin/env bash
# Installs what the tests need: Debian packages (as root), a Python environment in
# .cache/venv, pjdfstest and fsx in .cache/tools. Does nothing that is already done.
#   setup.sh [packages|python|tools]...   (all of them by default)
# Ends with 77 where only root could go on.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache
mkdir -p "$cache"

# command or file to look for, and the package that brings it
needed=(
    cc:gcc fusermount3:fuse3 mkfs.ext4:e2fsprogs mkfs.btrfs:btrfs-progs mkfs.xfs:xfsprogs losetup:mount flock:util-linux systemd-analyze:systemd
    man:man-db mandoc:mandoc dpkg-deb:dpkg strip:binutils pgrep:procps eu-stack:elfutils
    setfacl:acl setfattr:attr rsync:rsync git:git sqlite3:sqlite3 tar:tar tmux:tmux
    mkfs.btrfs:btrfs-progs compsize:btrfs-compsize bindfs:bindfs
    ncdump:netcdf-bin h5dump:hdf5-tools mpicc.mpich:libmpich-dev mpiexec.mpich:mpich
)

present() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) command -v "$1" > /dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] ;;
    esac
}

has_venv() { python3 -c 'import ensurepip' 2> /dev/null; }

packages() {
    local missing=() entry
    for entry in "${needed[@]}"; do
        present "${entry%%:*}" || missing+=("${entry##*:}")
    done
    has_venv || missing+=(python3-venv)
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
        echo "setup: not installed, needs root and apt-get: ${missing[*]}"
        return
    fi
    echo "setup: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends "${missing[@]}" > "$cache/apt.log" 2>&1 ||
        { tail -n 30 "$cache/apt.log"; exit 1; }
}

python() {
    local requirements=tests/scripts/requirements.txt
    cmp -s "$requirements" "$cache/venv/installed.txt" && return
    if ! has_venv && [ "$(id -u)" != 0 ]; then
        echo "setup: no Python environment, because the package python3-venv is missing and only root can install it"
        exit 77
    fi
    echo "setup: making $cache/venv"
    rm -rf "$cache/venv"
    python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$requirements"
    cp "$requirements" "$cache/venv/installed.txt"
}

tools() {
    local name version
    # One directory for both: they share most of their dependencies.
    export CARGO_TARGET_DIR=$cache/tools-build
    while read -r name version; do
        grep -qsxF "$version" "$cache/tools/$name.version" && [ -x "$cache/tools/bin/$name" ] && continue
        echo "setup: building $name $version"
        cargo install --quiet --locked --version "$version" --root "$cache/tools" "$name"
        echo "$version" > "$cache/tools/$name.version"
    done <<< "pjdfstest 0.2.2
fsx 0.3.2"
    rm -rf "$CARGO_TARGET_DIR"
}

for part in "${@:-packages python tools}"; do
    for one in $part; do "$one"; done
done
