#!/usr/bin/env bash
# Benchmark of flags: requests per second and per second of the server's CPU time, and latencies, of Weir and
# of Unleash Edge with the same flags, in the same run; also of the definitions for a client that has them
# already (304). Runs alternate, so that noise of the machine affects both.
# Usage: scripts/bench-flags.sh [SECONDS] [RUNS] [COUNTS]; COUNTS are numbers of flags.
#
#   scripts/bench-flags.sh --install   builds Unleash Edge in the directory of tools (10 minutes), and does nothing else
#
# WEIR_BIN skips the build of Weir. The load generator is wrk, a package of Debian.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=${WEIR_TOOLS:-$HOME/.cache/weir/tools}
edge=$tools/unleash-edge/bin/unleash-edge edge_version=19.15.1 swagger_version=0.2.0

install_edge() {
    # Its build downloads a page for its API, which the crate made for that holds as well.
    local work registry=${CARGO_HOME:-$HOME/.cargo}/registry/src page
    work=$(mktemp -d "${TMPDIR:-/tmp}/weir-edge.XXXXXX")
    cargo init --quiet --vcs none --name fetch "$work/fetch"
    (cd "$work/fetch" && cargo add --quiet "utoipa-swagger-ui-vendored@=$swagger_version" && cargo fetch --quiet)
    page=$(find "$registry" -path "*/utoipa-swagger-ui-vendored-$swagger_version/res/*.zip" -print -quit)
    SWAGGER_UI_DOWNLOAD_URL=file://$page CARGO_TARGET_DIR=$work/target \
        cargo install --locked --root "$tools/unleash-edge" --version "$edge_version" unleash-edge
    rm -rf "$work"
}
if [ "${1:-}" = --install ]; then
    install_edge
    exit
fi
[ -x "$edge" ] || { echo "Unleash Edge is not in $tools: run $0 --install" >&2; exit 1; }
command -v wrk >/dev/null || { echo "wrk is missing: apt-get install wrk" >&2; exit 1; }

seconds=${1:-8} runs=${2:-3} counts=${3:-5 350}
[ -n "${WEIR_BIN:-}" ] || (cd "$here/.." && cargo build --release --bin weir)
weir=${WEIR_BIN:-${CARGO_TARGET_DIR:-$here/../target}/release/weir}
measure() { python3 "$here/bench_flags.py" "$@"; }
export WEIR_PROJECT_API_KEY=phc_bench_project WEIR_PERSONAL_API_KEY=phx_bench_0123456789abcdef0123456789
work=$(mktemp -d "${TMPDIR:-/tmp}/weir-bench.XXXXXX")
servers=()
stop() {
    [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
    wait || true
    servers=()
}
finish() { stop; rm -rf "$work"; }
trap finish EXIT

for count in $counts; do
    # Both write their logs to files, at the levels that they have by themselves.
    "$weir" serve --data-dir "$work/data-$count" --listen 127.0.0.1:0 >"$work/weir.out" 2>"$work/weir.log" &
    servers+=($!)
    weir_url=$(measure await-line "$work/weir.out") || { cat "$work/weir.log" >&2; exit 1; }
    measure prepare "$weir_url" "$count" "$work/features.json"
    port=$(measure free-port)
    "$edge" --port "$port" offline --bootstrap-file "$work/features.json" --client-tokens '*:development.all' \
        --frontend-tokens '*:development.page' >"$work/edge.log" 2>&1 &
    servers+=($!)
    measure compare "$count" "$seconds" "$runs" "$work" "${servers[0]}=$weir_url" \
        "${servers[1]}=http://127.0.0.1:$port" || { tail -n 20 "$work/edge.log" >&2; exit 1; }
    stop
    rm -rf "$work/data-$count"
done
