#!/usr/bin/env bash
# The suite `interleavings`; arguments go to `cargo test`. It is built apart from the other suites:
# features are shared within a build, and `shuttle` replaces the locks of the store.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Thousands of schedules go through the store.
exec ${CARGO:-cargo} --config profile.dev.package.shale-store.opt-level=2 \
    test -p shale-tests --features shuttle --test interleavings --locked "$@"
