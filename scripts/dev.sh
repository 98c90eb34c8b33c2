#!/usr/bin/env bash
# Development loop: builds what a change affects and runs some of the tests.
#
#   scripts/dev.sh check                  type errors and warnings of all members, tests and benchmarks
#   scripts/dev.sh unit MEMBER [FILTER]   unit tests of a member such as `storage`, or of `weir`, the root; further words
#                                         go to the test program
#   scripts/dev.sh server [FILTER]        tests of the real process: a path such as `capture::`
#   scripts/dev.sh lint                   the lints of scripts/test.sh
#
# Uses the dependencies of the release build. Members are compiled incrementally and without optimization: fast to build,
# several times slower to run. For measurements use `cargo build --release`, for a complete check of a change
# scripts/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/weir/target}

what=${1:-}
[ $# -gt 0 ] && shift

export CARGO_INCREMENTAL=1
# No commit in the version: a new one would be a reason to compile again.
export WEIR_COMMIT=
quick=(--release --locked --config "$(scripts/unoptimized.sh 256)")

# Builds first, so that a build failure can be distinguished from a failing test.
run() {
    cargo test --quiet --no-run "${quick[@]}" "$@"
    cargo test "${quick[@]}" "$@" -- "${filter[@]}"
}

filter=("$@")
case $what in
check) cargo check --workspace --all-targets "${quick[@]}" ;;
unit)
    member=${1:?which member?}
    filter=("${@:2}")
    [ "$member" = weir ] || member=weir-$member
    # Beside the root, a member needs the features of dependencies that all need together: none is built once more.
    build=(cargo test --no-run -p weir -p "$member" --lib "${quick[@]}")
    "${build[@]}" --quiet
    program=$("${build[@]}" 2>&1 | sed -n "s|^ *Executable .*(\\(.*/${member//-/_}-[^)]*\\))\$|\\1|p")
    folder=src/${member#weir-}
    [ -d "$folder" ] || folder=.
    cd "$folder" && exec "$program" "${filter[@]}"
    ;;
server)
    # Many of these tests wait for the server: with more at once than cores, none of these is idle.
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} run --workspace --test server
    ;;
lint)
    RUSTC_WORKSPACE_WRAPPER=$(rustc --print sysroot)/bin/clippy-driver CLIPPY_ARGS=-Dwarnings \
        cargo build --workspace "${quick[@]}" --all-targets
    ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
    ;;
esac
