#!/usr/bin/env bash
# Takes the pictures of the guide from a real server with a made-up shop: src/guide/dashboard.png and src/guide/flag.png.
#
#   scripts/pictures.sh [WEIR]                                       WEIR is the program [default: weir]
#   PICTURES=DIRECTORY scripts/pictures.sh WEIR WIDTH THEME PATH ... other pictures, into another directory
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
weir=${1:-weir}
[ $# -gt 0 ] && shift
directory=${PICTURES:-$source/src/guide}
tools=$("$source/scripts/test-tools.sh")
work=$(mktemp -d)
server=
finish() {
    [ -n "$server" ] && kill "$server" && wait "$server" || true
    rm -rf "$work"
}
trap finish EXIT

mkdir -p "$directory"
"$weir" serve --data-dir "$work/data" --listen 127.0.0.1:0 --log error >"$work/out" &
server=$!
for _ in $(seq 100); do
    grep -q 'persons/' "$work/out" && break
    sleep 0.1
done
word() { sed -n "s/^$1 *\([^ ]*\).*/\1/p" "$work/out" | head -1; }
"$tools/nodejs/bin/node" "$source/scripts/pictures.mjs" "$tools/posthog-js/node_modules" "$(word 'weir listens on')" \
    "$(word 'project API key (SDKs send with it):')" "$(word 'personal API key (shown only this time):')" "$directory" "$@"
