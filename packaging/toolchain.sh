#!/bin/sh
# Names what is missing, before anything is built: toolchain.sh [build|demo]
set -eu
cd "$(dirname "$0")/.."
missing() {
    echo "error: $*" >&2
    exit 1
}
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rust="Rust $needed or later is needed; get it from https://rustup.rs"
# Either may be more than one word, as in "cargo +nightly".
cargo=${CARGO:-cargo} rustc=${RUSTC:-rustc} cc=${CC:-cc}

command -v ${cargo%% *} > /dev/null || missing "$(id -un) has no cargo in PATH: $rust"
found=$($rustc --version 2> /dev/null | cut -d' ' -f2) || found=
[ -n "$found" ] || missing "$(id -un) has no Rust toolchain: $rust"
older=$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)
[ "$older" = "$needed" ] || missing "Rust $found is too old: $rust"
command -v ${cc%% *} > /dev/null || missing "a C compiler is needed to build zstd; install the package gcc"

if [ "${1:-}" = demo ]; then
    [ -e /dev/fuse ] || missing "/dev/fuse is not there; load it with 'modprobe fuse', or give it to the container"
    [ "$(id -u)" = 0 ] || command -v fusermount3 > /dev/null ||
        missing "ordinary users need fusermount3 to mount; install the package fuse3"
fi
if [ "${1:-}" = build ] && ! packaging/protoc.sh; then
    echo "note: this build has no etcd engine, because protoc is missing; install the packages protobuf-compiler and libprotobuf-dev for it"
fi
