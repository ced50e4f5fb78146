#!/bin/sh
# Measures ShaleFS beside its peers: bench/run.sh [NAME...]; root.
#   QUICK=1        small sizes, fewer workloads, under four minutes
#   BENCH_SMOKE=1  tiny sizes, with the environment of the tests: shows that it runs, measures nothing
#   BENCH_DIR      where the image and the mounts are made (default target/bench): a disk with 8 GB free
#   SHALE_BIN      the binary that is measured (default target/release/shale)
set -eu
cd "$(dirname "$0")/.."
scale=full
[ -z "${QUICK:-}" ] || scale=quick
[ -z "${BENCH_SMOKE:-}" ] || scale=smoke
work=${BENCH_DIR:-target/bench}
mkdir -p "$work"

missing=
for pair in mkfs.ext4:e2fsprogs losetup:mount mkfs.btrfs:btrfs-progs compsize:btrfs-compsize \
    bindfs:bindfs fusermount3:fuse3 nccopy:netcdf-bin tar:tar; do
    command -v "${pair%%:*}" > /dev/null || missing="$missing ${pair#*:}"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || { echo "bench: needs root; not installed:$missing" >&2; exit 1; }
    apt-get -qq update
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing > "$work/apt.log" 2>&1 ||
        { tail -n 30 "$work/apt.log" >&2; exit 1; }
fi

venv=.cache/venv
if [ $scale = smoke ]; then
    [ -x $venv/bin/python ] || tests/scripts/setup.sh python
else
    venv=.cache/bench-venv
    if ! cat bench/requirements.txt tests/scripts/requirements.txt 2> /dev/null | cmp -s - $venv/installed.txt; then
        rm -rf $venv
        python3 -m venv $venv
        $venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all: -r bench/requirements.txt
        cat bench/requirements.txt tests/scripts/requirements.txt > $venv/installed.txt
    fi
fi
export PYTHONDONTWRITEBYTECODE=1
if [ $scale = smoke ]; then
    # Nothing reads its results.
    exec $venv/bin/python -m bench --scale smoke --work "$work" --results "$work/results" "$@"
fi
exec $venv/bin/python -m bench --scale $scale --work "$work" "$@"
