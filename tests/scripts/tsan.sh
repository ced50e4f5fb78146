#!/usr/bin/env bash
# Looks for data races: the unit tests of index and store, and a daemon under load, everything
# compiled with the thread sanitizer, the standard library too. A race that is found is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
triple=$(rustc -vV | sed -n 's/^host: //p')

missing=()
[ -e "$(rustc +nightly --print sysroot 2> /dev/null)/lib/rustlib/src/rust/library/Cargo.lock" ] ||
    missing+=("rustup toolchain install nightly --component rust-src")
command -v llvm-symbolizer > /dev/null || missing+=("apt-get install llvm")
if [ ${#missing[@]} -gt 0 ]; then
    echo "tsan: needs what these install:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 1
fi

sanitized() {
    # With assertions; linked without the optimisation that takes longest.
    RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$target/tsan \
        CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_LTO=off \
        "$cargo" +nightly "$@" -Zbuild-std --target "$triple" --release --locked
}

suppressions="suppressions='$PWD/tests/scripts/tsan.supp'"
TSAN_OPTIONS="$suppressions" sanitized test -p shale-index -p shale-store --lib

sanitized build -p shale
reports=$target/tsan/reports
rm -rf "$reports"
mkdir -p "$reports"
# The exit status of a daemon is a part of the tests, so races are reported in files.
export SHALE_BIN=$target/tsan/$triple/release/shale SHALE_TEST_SANITIZED=1
export TSAN_OPTIONS="$suppressions log_path='$reports/race' exitcode=0"
failed=0
"$cargo" test -p shale-tests --locked --test load -- a_crowd_leaves_nothing_behind || failed=1
"$cargo" test -p shale-tests --locked --test settle -- contents_survive_settling || failed=1
if [ -n "$(ls -A "$reports")" ]; then
    cat "$reports"/*
    echo "tsan: data races, see above"
    exit 1
fi
[ $failed = 0 ] && echo "tsan: no data races"
exit $failed
