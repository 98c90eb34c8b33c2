#!/usr/bin/env bash
# Benchmark of ingestion: CPU time per event of the whole write path, from an HTTP gzip batch through the
# synced log to Parquet and the Delta commit, and of DuckDB converting the same events from an NDJSON file
# to Parquet. Runs alternate, so that noise of the machine affects both.
# Usage: scripts/bench-ingest.sh [EVENTS] [RUNS]; WEIR_BIN skips the build.
set -euo pipefail
events=${1:-300000} runs=${2:-3}
here=$(cd "$(dirname "$0")" && pwd)
tools=${WEIR_TOOLS:-$HOME/.cache/weir/tools}/bench
python=$tools/bin/python duckdb=2.0.0
if ! "$python" -c "import duckdb; assert duckdb.__version__ == '$duckdb'" 2>/dev/null; then
    python3 -m venv "$tools"
    "$python" -m pip install --quiet "duckdb==$duckdb"
fi
[ -n "${WEIR_BIN:-}" ] || (cd "$here/.." && cargo build --release --bin weir)
weir=${WEIR_BIN:-${CARGO_TARGET_DIR:-$here/../target}/release/weir}
measure() { "$python" "$here/bench_duckdb.py" "$@"; }
export WEIR_PROJECT_API_KEY=phc_bench_project WEIR_PERSONAL_API_KEY=phx_bench_0123456789abcdef0123456789
work=$(mktemp -d "${TMPDIR:-/tmp}/weir-bench.XXXXXX")
wrapper=
finish() { [ -z "$wrapper" ] || kill "$wrapper" 2>/dev/null || true; wait || true; rm -rf "$work"; }
trap finish EXIT
same=(--events "$events" --seed 1 --now "$(date -u +%Y-%m-%dT%H:%M:%SZ)")
"$weir" load "${same[@]}" --write-ndjson "$work/events.ndjson"

check() { # name, path: every event is there, once
    local found
    found=$(measure count "$2")
    [ "$found" = "$events $events" ] || { echo "$1 holds '$found' rows and uuids, not $events" >&2; exit 1; }
}

ingest() { # run number
    local data=$work/data-$1 out=$work/serve-$1 url= ready=
    # Not `measure`: the process id of a function is that of a shell, which would keep the signal.
    "$python" "$here/bench_duckdb.py" cpu "$out.cpu" "$weir" serve --data-dir "$data" --listen 127.0.0.1:0 \
        >"$out" 2>"$out.err" &
    wrapper=$!
    for _ in $(seq 300); do
        url=$(grep -o -m1 'http://127\.0\.0\.1:[0-9]*' "$out" || true)
        [ -n "$url" ] && "$python" -c "import urllib.request as r; r.urlopen('$url/_readiness')" 2>/dev/null \
            && ready=1 && break
        kill -0 "$wrapper" 2>/dev/null || { cat "$out.err" >&2; exit 1; }
        sleep 0.1
    done
    [ -n "$ready" ] || { echo "the server is not ready:" >&2; cat "$out.err" >&2; exit 1; }
    "$weir" load "${same[@]}" --url "$url" --batch 500 --compression gzip --prebuild --server-pid "$(cat "$out.cpu.pid")"
    kill -TERM "$wrapper"
    wait "$wrapper" || { echo "the server failed:" >&2; cat "$out.err" >&2; exit 1; }
    wrapper=
    echo "weir $(cat "$out.cpu")" >>"$work/figures"
    check weir "$data/tables/events"
    rm -rf "$data"
}

for run in $(seq "$runs"); do
    ingest "$run"
    echo "duckdb $(measure copy "$work/events.ndjson" "$work/events.parquet")" >>"$work/figures"
    check duckdb "$work/events.parquet"
done
measure summary "$events" "$work/figures"
