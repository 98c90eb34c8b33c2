#!/usr/bin/env bash
# A server with a bucket beside one with a disk, on this machine, where the object store takes part of the processors:
# ingestion, single requests, questions with a warm and a cold cache, how soon a standby serves after a kill, reads on it, and
# projects on three nodes beside one. Usage: scripts/bench-bucket.sh [PART...] with `ingest`, `questions`, `takeover`, `reads` and
# `shards` (default: all); WEIR_BIN skips the build, EVENTS, PERSONS, ROUNDS and RATE (events a second) say how much.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=$("$here/test-tools.sh")
[ -n "${WEIR_BIN:-}" ] || (cd "$here/.." && cargo build --release --bin weir)
export WEIR_BIN=${WEIR_BIN:-${CARGO_TARGET_DIR:-$here/../target}/release/weir}
[ $# -gt 0 ] || set -- ingest questions takeover reads shards
exec "$tools/moto/bin/python" -B "$here/bench_bucket.py" "$@"
