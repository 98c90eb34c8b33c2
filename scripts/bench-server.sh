# Sourced by benchmarks that ask one server: builds the program, and starts and stops it. `start DIRECTORY` leaves its
# address in `url` and its process in `server`; `work` is a directory that is removed at the end, after the server.
# WEIR_BIN skips the build.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
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

# Ends the server in order, so that all events and persons are in files.
stop() {
    kill -TERM "$server"
    wait "$server"
    server=
}
