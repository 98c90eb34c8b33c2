#!/usr/bin/env bash
# Development loop: builds what a change affects and runs some of the tests.
#
#   scripts/dev.sh check             type errors and warnings of library, program, tests and benchmarks
#   scripts/dev.sh unit [FILTER]     unit tests: a path such as `storage::delta`; further words go to the test program
#   scripts/dev.sh server [FILTER]   tests of the real process: a path such as `capture::`
#   scripts/dev.sh lint              the lints of scripts/test.sh
#
# Uses the dependencies of the release build, so none of them is compiled twice. Weir itself is compiled
# incrementally and without optimization: fast to build, several times slower to run. For measurements use
# `cargo build --release`, for a complete check of a change scripts/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/weir/target}

what=${1:-}
[ $# -gt 0 ] && shift

weir=profile.release.package.weir
export CARGO_INCREMENTAL=1
quick=(--release --locked
    --config "$weir.opt-level=0" --config "$weir.codegen-units=256" --config "$weir.debug=false")

# Builds first, so that a build failure can be distinguished from a failing test.
run() {
    cargo test --quiet --no-run "${quick[@]}" "$@"
    cargo test "${quick[@]}" "$@" -- "${filter[@]}"
}

filter=("$@")
case $what in
check) cargo check --all-targets "${quick[@]}" ;;
unit) run --lib ;;
server)
    # Many of these tests wait for the server: with more at once than cores, none of these is idle.
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} run --test server
    ;;
lint)
    RUSTC_WORKSPACE_WRAPPER=$(rustc --print sysroot)/bin/clippy-driver CLIPPY_ARGS=-Dwarnings \
        cargo build "${quick[@]}" --all-targets
    ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
    ;;
esac
