#!/usr/bin/env bash
# Queries over workers beside the same server alone, all on this machine: the CPU time of all processes, that of the busiest one,
# and whether the answers are equal. Wall-clock time shows nothing here, where all share the processors. Usage:
# scripts/bench-workers.sh [WORKERS...] with the numbers of workers (default: 2 3 4); WEIR_BIN skips the build, EVENTS, PERSONS and
# ROUNDS say how much.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=$("$here/test-tools.sh")
[ -n "${WEIR_BIN:-}" ] || (cd "$here/.." && cargo build --release --bin weir)
export WEIR_BIN=${WEIR_BIN:-${CARGO_TARGET_DIR:-$here/../target}/release/weir}
[ $# -gt 0 ] || set -- 2 3 4
exec "$tools/moto/bin/python" -B "$here/bench_workers.py" "$@"
