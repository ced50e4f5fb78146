#!/bin/sh
# What settling gains beside peers, as Markdown on standard output. Needs root, and `make setup`.
set -eu
cd "$(dirname "$0")/../.."
work=${BENCH_DIR:-target/bench-settle}
mkdir -p "$work"
if [ ! -d "$work/ferret" ]; then
    (cd "$work" && apt-get download -q ferret-datasets >&2 && dpkg-deb -x ferret-datasets_*.deb ferret)
fi
missing=
for pair in nccopy:netcdf-bin mkfs.btrfs:btrfs-progs compsize:btrfs-compsize; do
    command -v "${pair%%:*}" > /dev/null || missing="$missing ${pair#*:}"
done
# shellcheck disable=SC2086
[ -z "$missing" ] || apt-get install -q -y $missing >&2
[ -x .cache/venv/bin/python ] || tests/scripts/setup.sh python >&2
exec .cache/venv/bin/python bench/settle/measure.py "$work"
