#!/usr/bin/env bash
# All checks, then a table of the tests that ran, passed and were not run.
#   test.sh [check|unit|e2e]...     (all of them by default, with the set-up and the build)
set -uo pipefail
cd "$(dirname "$0")/../.."
results=$PWD/target/test-results
rm -rf "$results"
mkdir -p "$results"
export SHALE_TEST_RESULTS=$results
cargo=${CARGO:-cargo}
begun=$SECONDS

running=()
finish() {
    # Suites clean up when their parent has died; `within` starts its own process groups.
    for pid in "${running[@]:-}"; do [ -n "$pid" ] && { kill -- "-$pid" || kill "$pid"; } 2> /dev/null; done
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '\n=== %s (%d s)\n' "$*" $((SECONDS - begun)); }

# row SUITE EXECUTED PASSED NOT_RUN
row() { printf 'suite\t%s\t%s\t%s\t%s\n' "$@" >> "$results/$1.tsv"; }

# Runs checks that pass, fail, or exit with 77 where they cannot run; all of them, even after a failure.
checks() {
    local suite=$1 executed=0 passed=0 skipped=0 name status
    shift
    for name in "$@"; do
        say "$suite: $name"
        "$name"
        status=$?
        if [ $status = 77 ]; then
            # As the GNU test harnesses have it.
            skipped=$((skipped + 1))
            printf 'skipped\t%s::%s\tneeds what only root or a network can bring\n' "$suite" "$name" >> "$results/$suite.tsv"
            continue
        fi
        executed=$((executed + 1))
        if [ $status = 0 ]; then
            passed=$((passed + 1))
        else
            printf 'failed\t%s::%s\n' "$suite" "$name" >> "$results/$suite.tsv"
            echo "$name FAILED"
        fi
    done
    row "$suite" "$executed" "$passed" "$skipped"
}

# The etcd engine and its tests, where they can be built: with "all" of the workspace, or "crates"
# without shale-tests.
features() {
    packaging/protoc.sh || return 0
    case $1 in
        all) echo --features shale/etcd,shale-tests/etcd ;;
        crates) echo --features shale/etcd ;;
    esac
}
formatting() { $cargo fmt --all --check; }
clippy() {
    $cargo clippy --quiet --workspace --all-targets $(features all) --locked -- -D warnings &&
        $cargo clippy --quiet -p shale-backing -p shale-index -p shale-store -p shale-tests \
            --features shale-tests/shuttle --lib --test interleavings --locked -- -D warnings
}
rustdoc() { RUSTDOCFLAGS=-Dwarnings $cargo doc --quiet --workspace --no-deps $(features all) --locked; }
dependencies() {
    [ "$(id -u)" = 0 ] || command -v "$python" > /dev/null || return 77
    "$python" tests/scripts/check_dependencies.py
}
# The names in the documents exist.
documents() {
    command -v "$python" > /dev/null || return 77
    "$python" tests/scripts/check_docs.py
}
# Imports go down the floors that docs/design.md shows.
rooms() {
    command -v "$python" > /dev/null || return 77
    "$python" tests/scripts/check_rooms.py
}
packages() { tests/scripts/setup.sh packages; }
metadata_server() { tests/scripts/setup.sh etcd && { [ -x .cache/etcd/bin/etcd ] || return 77; }; }
# README.md and docs/performance.md have the measured figures.
bench_figures() {
    command -v "$python" > /dev/null || return 77
    "$python" -B -m bench.documents --check
}
python_environment() { tests/scripts/setup.sh python; }
test_tools() { tests/scripts/setup.sh tools; }
release_build() { make --no-print-directory build; }
failpoints_build() { make --no-print-directory failpoints > "$results/failpoints.log" 2>&1 || { tail -n 50 "$results/failpoints.log"; false; }; }
python=.cache/venv/bin/python
[ -x $python ] || python=python3

# Adds up the "test result" lines that the standard harness and ours both print.
count() {
    awk -v suite="$1" -v status="$3" '
        /^test result:/ { for (i = 4; i < NF; i++) {
            if ($(i + 1) ~ /^passed/) passed += $i
            if ($(i + 1) ~ /^failed/) failed += $i
            if ($(i + 1) ~ /^(skipped|ignored)/) skipped += $i } seen++ }
        /^test .* FAILED/ { name = $2; printf "failed\t%s::%s\n", suite, name }
        END {
            # A run that failed silently, or ran nothing, has failed.
            if ((status != 0 && !failed) || !seen || passed + failed + skipped == 0) {
                failed++
                printf "failed\t%s::(broke off with status %s)\n", suite, status
            }
            printf "suite\t%s\t%d\t%d\t%d\n", suite, passed + failed, passed, skipped
        }' "$2"
}

# within SECONDS COMMAND...: ends a command that takes longer, after printing where its threads are.
within() {
    local seconds=$1 pid watch status
    shift
    setsid "$@" &
    pid=$!
    setsid bash -c '
        sleep "$1"
        echo "error: not done after $1 s"
        for process in $(pgrep -s "$2"); do
            case $(readlink "/proc/$process/exe") in */deps/*) eu-stack -p "$process" ;; esac
        done
        kill -KILL -- "-$2"' within "$seconds" "$pid" &
    watch=$!
    running=("$pid" "$watch")
    wait "$pid"
    status=$?
    kill -- "-$watch" 2> /dev/null
    running=()
    return $status
}

unit() {
    say "building the tests of the crates"
    # Separate from running them, which has a time limit: the time to build depends on the machine.
    $cargo test --quiet --workspace --lib --bins $(features all) --locked --no-run > "$results/unit-build.log" 2>&1 &&
        $cargo test --quiet --workspace --exclude shale-tests --test '*' $(features crates) --locked --no-run >> "$results/unit-build.log" 2>&1 ||
        tail -n 100 "$results/unit-build.log"
    say "unit tests"
    within 1200 $cargo test --workspace --lib --bins $(features all) --locked --no-fail-fast > "$results/unit.log" 2>&1
    local status=$?
    grep -E '^(test |error|warning: unused)|panicked|^     Running|^test result' "$results/unit.log" | grep -vE '^test .* ok$'
    [ $status = 0 ] || tail -n 200 "$results/unit.log"
    count unit "$results/unit.log" $status > "$results/unit.tsv"
    say "integration tests of the crates"
    within 1200 $cargo test --workspace --exclude shale-tests --test '*' $(features crates) --locked --no-fail-fast > "$results/crates.log" 2>&1
    status=$?
    if ! grep -q 'no test target' "$results/crates.log"; then
        [ $status = 0 ] || tail -n 200 "$results/crates.log"
        count crates "$results/crates.log" $status > "$results/crates.tsv"
    fi
}

one_suite() {
    "$2" > "$results/$1.log" 2>&1
    local status=$?
    cat "$results/$1.log"
    # Our own runner writes its results; the standard harness does not.
    [ -e "$results/$1.tsv" ] || count "$1" "$results/$1.log" $status > "$results/$1.tsv"
}

e2e() {
    checks failpoints failpoints_build
    say "building the end-to-end tests"
    local log=$results/e2e-build.log etcd=
    packaging/protoc.sh && etcd=yes
    if ! { $cargo test -p shale-tests --tests ${etcd:+--features etcd} --no-run --locked && tests/scripts/interleavings.sh --no-run; } > "$log" 2>&1; then
        tail -n 100 "$log"
        printf 'failed\te2e::(does not build)\n' > "$results/e2e.tsv"
        row e2e 1 0 0
        return
    fi
    say "end-to-end tests, two suites at a time"
    # The long ones first.
    sed -n 's/.*Executable tests\/\([a-z0-9_]*\)\/main\.rs (\(.*\))/\1 \2/p' "$log" |
        awk '{ rank = index("crash death fsx load model posix programs settle bench damage", $1); print (rank ? rank : 99), $0 }' |
        sort -n | cut -d' ' -f2- > "$results/suites"
    # Suites that copy all mounts into a new namespace keep others from unmounting.
    local alone='^(boot|install|bench|helpers|slow) '
    grep -E "$alone" "$results/suites" > "$results/suites-alone"
    grep -vE "$alone" "$results/suites" > "$results/suites-shared"
    suites_at_a_time 2 "$results/suites-shared"
    suites_at_a_time 1 "$results/suites-alone"
}

# suites_at_a_time JOBS FILE
suites_at_a_time() {
    local name program
    while read -r name program; do
        while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n; done
        case $program in /*) ;; *) program=$PWD/$program ;; esac
        one_suite "$name" "$program" < /dev/null &
        running+=($!)
    done < "$2"
    wait
    running=()
}

summary() {
    cat "$results"/*.tsv | awk -F'\t' '
        BEGIN { printf "\n%-42s %9s %9s %9s\n", "suite", "executed", "passed", "not run" }
        $1 == "suite" { printf "%-42s %9d %9d %9d\n", $2, $3, $4, $5; passed += $4; failed += $3 - $4; skipped += $5 }
        $1 == "tally" { printf "  %-40s %9d %9d %9d\n", $2, $3, $4, $5 }
        $1 == "failed" { bad = bad "\n  " $2 }
        $1 == "skipped" { split($2, part, "::"); why[part[1] ": " $3]++ }
        END {
            for (reason in why) printf "\nskipped %d of %s", why[reason], reason
            if (bad) printf "\nfailed:%s", bad
            printf "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped
            exit failed > 0 || passed == 0
        }'
}

if [ $# -eq 0 ]; then
    [ "$(id -u)" = 0 ] || echo "Not root: packages are not installed, and what needs a mount is skipped."
    checks setup packages python_environment metadata_server
    python=.cache/venv/bin/python
    [ -x $python ] || python=python3
    # The tools are built in parallel with the release: neither keeps two cores busy to its end.
    test_tools > "$results/tools.log" 2>&1 &
    tools=$!
    checks build release_build
    if wait $tools; then row tools 2 2 0; else
        cat "$results/tools.log"
        printf 'failed\ttools::pjdfstest and fsx\n' > "$results/tools.tsv"
        row tools 2 0 0
    fi
    set -- check unit e2e
fi
for part in "$@"; do
    case $part in
        check) checks check formatting clippy rustdoc dependencies rooms documents bench_figures ;;
        unit) unit ;;
        e2e) e2e ;;
        *) echo "test.sh: what is $part?" >&2; exit 2 ;;
    esac
done
say "done"
summary
