#!/usr/bin/env bash
# Queries about persons, events and definitions, SQL and insights: latencies of Weir, and of DuckDB answering the same from the
# live Parquet files, in the same run. The events are of 30 days. Usage: scripts/bench-read.sh [EVENTS] [PERSONS] [ROUNDS]; WEIR_BIN skips the build;
# WEIR_BENCH_DIR keeps the data directory there, and uses it again if it exists.
set -euo pipefail
events=${1:-1000000} persons=${2:-100000} rounds=${3:-200}
here=$(cd "$(dirname "$0")" && pwd)
python=${WEIR_TOOLS:-$HOME/.cache/weir/tools}/readers/bin/python
"$python" -c "import duckdb, deltalake" 2>/dev/null || { echo "run scripts/test-tools.sh first" >&2; exit 1; }
[ -n "${WEIR_BIN:-}" ] || (cd "$here/.." && cargo build --release --bin weir)
weir=${WEIR_BIN:-${CARGO_TARGET_DIR:-$here/../target}/release/weir}
export WEIR_PROJECT_API_KEY=phc_bench_project WEIR_PERSONAL_API_KEY=phx_bench_0123456789abcdef0123456789 WEIR_LOG=${WEIR_LOG:-warn}
work=$(mktemp -d "${TMPDIR:-/tmp}/weir-bench.XXXXXX")
data=${WEIR_BENCH_DIR:-$work/data}
server= url=
finish() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; wait || true; rm -rf "$work"; }
trap finish EXIT

start() {
    : >"$work/out"
    "$weir" serve --data-dir "$data" --listen 127.0.0.1:0 >"$work/out" 2>"$work/err" &
    server=$!
    for _ in $(seq 600); do
        url=$(grep -o -m1 'http://127\.0\.0\.1:[0-9]*' "$work/out" || true)
        [ -n "$url" ] && "$python" -c "import urllib.request as r; r.urlopen('$url/_readiness')" 2>/dev/null && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    echo "the server is not ready:" >&2
    cat "$work/err" >&2
    exit 1
}

if [ ! -d "$data" ]; then
    start
    "$weir" load --url "$url" --events "$events" --distinct-ids "$persons" --span 720h --connections 8 --server-pid "$server"
    # Everything into files, the persons too.
    kill -TERM "$server"
    wait "$server"
fi
start
"$python" "$here/bench_read.py" "$url" "$data" "$rounds" "$server"
"$python" "$here/bench_sql.py" "$url" "$data" 7 "$server"
"$python" "$here/bench_insights.py" "$url" "$data" 3 "$server"
