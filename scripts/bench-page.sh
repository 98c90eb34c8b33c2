#!/usr/bin/env bash
# The pages of a server with events of 30 days against their budgets: time to the first byte, size, first paint; and how
# long a server without events takes to be ready. Usage: scripts/bench-page.sh [EVENTS] [PERSONS]; WEIR_BIN skips the build.
# Fails if a page exceeds its budget.
set -euo pipefail
events=${1:-200000} persons=${2:-20000}
here=$(cd "$(dirname "$0")" && pwd)
tools=$("$here/test-tools.sh")
[ -n "${WEIR_BIN:-}" ] || (cd "$here/.." && cargo build --release --bin weir)
weir=${WEIR_BIN:-${CARGO_TARGET_DIR:-$here/../target}/release/weir}
export WEIR_PROJECT_API_KEY=phc_bench_project WEIR_PERSONAL_API_KEY=phx_bench_0123456789abcdef0123456789 WEIR_LOG=${WEIR_LOG:-warn}
work=$(mktemp -d "${TMPDIR:-/tmp}/weir-bench.XXXXXX")
server= url=
finish() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; wait || true; rm -rf "$work"; }
trap finish EXIT

start() {
    : >"$work/out"
    "$weir" serve --data-dir "$1" --listen 127.0.0.1:0 >"$work/out" 2>"$work/err" &
    server=$!
    for _ in $(seq 6000); do
        url=$(grep -o -m1 'http://127\.0\.0\.1:[0-9]*' "$work/out" || true)
        [ -n "$url" ] && curl -sf "$url/_readiness" >/dev/null && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.01
    done
    echo "the server is not ready:" >&2
    cat "$work/err" >&2
    exit 1
}
stop() { kill -TERM "$server" && wait "$server" && server=; }

start "$work/empty" && stop
begun=$(date +%s%N)
start "$work/empty"
echo "ready again after $((($(date +%s%N) - begun) / 1000000)) ms, without events; program of $(($(stat -c %s "$weir") / 1000)) kB"
stop
start "$work/data"
"$weir" load --url "$url" --events "$events" --distinct-ids "$persons" --span 720h --connections 4 >/dev/null
"$tools/nodejs/bin/node" "$here/bench_page.mjs" "$tools/posthog-js/node_modules" "$url" "$WEIR_PERSONAL_API_KEY"
