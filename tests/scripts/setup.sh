#!/usr/bin/env bash
# Installs the tools of the tests: Debian packages (as root), a Python environment in
# .cache/venv, pjdfstest and fsx in .cache/tools, etcd in .cache/etcd. Skips everything that is
# already there.
#   setup.sh [packages|python|tools|etcd]...   (all of them by default)
# Exits with 77 where only root could continue.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache
mkdir -p "$cache"

# command or file to look for, and the package that contains it
needed=(
    cc:gcc fusermount3:fuse3 mkfs.ext4:e2fsprogs mkfs.btrfs:btrfs-progs mkfs.xfs:xfsprogs losetup:mount flock:util-linux systemd-analyze:systemd
    man:man-db mandoc:mandoc dpkg-deb:dpkg strip:binutils pgrep:procps eu-stack:elfutils
    setfacl:acl setfattr:attr rsync:rsync git:git sqlite3:sqlite3 tar:tar tmux:tmux
    mkfs.btrfs:btrfs-progs compsize:btrfs-compsize bindfs:bindfs
    ncdump:netcdf-bin h5dump:hdf5-tools mpicc.mpich:libmpich-dev mpiexec.mpich:mpich
    openssl:openssl
)
# Without them the etcd engine is not built. PROTOC may name a compiler outside of PATH.
packaging/protoc.sh || needed+=(protoc:protobuf-compiler /usr/include/google/protobuf/descriptor.proto:libprotobuf-dev)

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

# The oldest release without known consistency bugs that the tests would meet.
etcd_needed=3.5.28

etcd_version() { "$cache/etcd/bin/etcd" --version 2> /dev/null | sed -n 's/^etcd Version: //p'; }

etcd_is_new_enough() {
    local found
    found=$(etcd_version)
    [ -n "$found" ] && [ "$(printf '%s\n' "$etcd_needed" "$found" | sort -V | head -n 1)" = "$etcd_needed" ]
}

# Debian's newest etcd, unpacked and not installed. It comes from the mirror that this machine uses
# anyway, through lists and settings of its own: the machine's apt is left alone. apt verifies the
# signature of the archive and the checksums of the packages. Where it cannot be had, the tests
# that need it are skipped.
etcd() {
    etcd_is_new_enough && return
    local sources=/etc/apt/sources.list.d/debian.sources work=$cache/etcd-fetch
    if ! command -v apt-get > /dev/null || ! [ -e "$sources" ]; then
        echo "setup: no etcd, because it is unpacked from a Debian package and this machine has no $sources"
        return
    fi
    echo "setup: fetching etcd"
    rm -rf "$work"
    mkdir -p "$work"/{lists/partial,archives/partial,sources,preferences,unpacked}
    # The first stanza is the main archive.
    awk '/^[[:space:]]*$/ { if (seen) exit; next } !/^#/ { seen = 1; print }' "$sources" |
        sed 's/^Suites:.*/Suites: sid/; s/^Components:.*/Components: main/' > "$work/sources/sid.sources"
    cat > "$work/apt.conf" << END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$work/sources";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "$work/preferences";
Dir::State::Lists "$work/lists";
Dir::State::Status "$work/status";
Dir::Cache "$work";
Acquire::Languages "none";
APT::Sandbox::User "$(id -un)";
END
    : > "$work/status"
    export APT_CONFIG=$work/apt.conf
    if ! (cd "$work" && apt-get -qq update && apt-get -qq download etcd-server) > "$work.log" 2>&1; then
        echo "setup: no etcd, because the Debian archive cannot be reached:"
        tail -n 5 "$work.log"
        return
    fi
    dpkg -x "$work"/etcd-server_*.deb "$work/unpacked"
    mkdir -p "$cache/etcd/bin"
    install -m 755 "$work/unpacked/usr/bin/etcd" "$cache/etcd/bin/etcd"
    rm -rf "$work"
    etcd_is_new_enough && return
    echo "setup: no etcd, because Debian has '$(etcd_version)' and the tests need $etcd_needed"
    rm -rf "$cache/etcd"
}

for part in "${@:-packages python tools etcd}"; do
    for one in $part; do "$one"; done
done
