#!/usr/bin/env bash
# The pages of a server with events of 30 days against their budgets: time to the first byte, size, first paint; and how
# long a server without events takes to be ready. Usage: scripts/bench-page.sh [EVENTS] [PERSONS]; WEIR_BIN skips the build.
# Fails if a page exceeds its budget.
set -euo pipefail
events=${1:-200000} persons=${2:-20000} starts=7
tools=$("$(dirname "$0")/test-tools.sh")
. "$(dirname "$0")/bench-server.sh"

start "$work/empty" && stop
for _ in $(seq "$starts"); do
    begun=$(date +%s%N)
    start "$work/empty"
    echo $((($(date +%s%N) - begun) / 1000000)) >>"$work/millis"
    stop
done
strip -o "$work/stripped" "$weir"
echo "ready again after $(sort -n "$work/millis" | sed -n "$((starts / 2 + 1))p") ms without events (median of $starts);" \
    "program of $(($(stat -c %s "$work/stripped") / 1000)) kB without symbols"
rm "$work/stripped"
start "$work/data"
"$weir" load --url "$url" --events "$events" --distinct-ids "$persons" --span 720h --connections 4 >/dev/null
"$tools/nodejs/bin/node" "$here/bench_page.mjs" "$tools/posthog-js/node_modules" "$url" "$WEIR_PERSONAL_API_KEY"
