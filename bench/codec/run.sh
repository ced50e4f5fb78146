#!/bin/sh
# Measures the codec beside its peers: bench/codec/run.sh [seconds per figure]
#
# Fetches Debian's ferret-datasets and the peers' Python packages once, keeps
# them under target/bench-codec, prints a Markdown table on standard output.
# One core; on a busy machine set BEST=1 to take least times, not medians.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-0.4}
work=${BENCH_DIR:-target/bench-codec}
mkdir -p "$work"
if [ ! -d "$work/venv" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install -q numpy netCDF4 blosc2 bitshuffle pcodec fpzip
fi
if [ ! -f "$work/sets/manifest" ]; then
    (cd "$work" && apt-get download ferret-datasets && dpkg-deb -x ferret-datasets_*.deb ferret)
    "$work/venv/bin/python" bench/codec/data.py "$work/ferret/usr/share/ferret-vis/data" "$work/sets"
fi
cargo build --release -q -p shale-codec --example measure
target=${CARGO_TARGET_DIR:-target}
pin=""
command -v taskset >/dev/null && pin="taskset -c $(($(nproc) - 1))"
$pin "$target/release/examples/measure" "$work/sets/manifest" "$seconds" > "$work/measure.tsv"
$pin "$work/venv/bin/python" bench/codec/peers.py "$work/sets/manifest" "$seconds" > "$work/peers.tsv"
"$work/venv/bin/python" bench/codec/table.py "$work/measure.tsv" "$work/peers.tsv"
