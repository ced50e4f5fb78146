#!/usr/bin/env bash
# Runs the randomised suites for a given time, then writes a table into docs/reliability.md.
#   HOURS=2 torture.sh        SHALE_TEST_SEED=N repeats the work of a run
#   SUITES="crash death" torture.sh     only these
set -uo pipefail
cd "$(dirname "$0")/../.."
results=$PWD/target/torture-results
rm -rf "$results"
mkdir -p "$results"
export SHALE_TEST_RESULTS=$results
cargo=${CARGO:-cargo}
suites=${SUITES:-power_loss crash death oom sick slow enospc load tamper model damage settle fsx}
# Tests that go on until their time is up: three of power_loss, three of crash, two of death, one
# each of oom, sick, slow, enospc, load and tamper, two of model. load also creates a million files.
randomised=16
export SHALE_TEST_SECONDS=${SECONDS_EACH:-$(awk -v hours="${HOURS:-1}" -v n=$randomised 'BEGIN { printf "%d", hours * 3600 / n }')}
begun=$SECONDS
failed=0
for suite in $suites; do
    $cargo test -p shale-tests --locked --test "$suite" || failed=1
done
python=.cache/venv/bin/python
[ -x $python ] || python=python3
$python tests/scripts/reliability.py "$results" $((SECONDS - begun)) docs/reliability.md || failed=1
exit $failed
