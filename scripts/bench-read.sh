#!/usr/bin/env bash
# Queries about persons, events and definitions, SQL and insights: latencies of Weir, and of DuckDB answering the same from the
# live Parquet files, in the same run. Usage: scripts/bench-read.sh [EVENTS] [PERSONS] [ROUNDS] [DAYS]; WEIR_BIN skips the build;
# WEIR_BENCH_DIR keeps the data directory there, and uses it again if it exists.
set -euo pipefail
events=${1:-1000000} persons=${2:-100000} rounds=${3:-200} days=${4:-30}
python=${WEIR_TOOLS:-$HOME/.cache/weir/tools}/readers/bin/python
"$python" -c "import duckdb, deltalake" 2>/dev/null || { echo "run scripts/test-tools.sh first" >&2; exit 1; }
. "$(dirname "$0")/bench-server.sh"
data=${WEIR_BENCH_DIR:-$work/data}

if [ ! -d "$data" ]; then
    start "$data"
    "$weir" load --url "$url" --events "$events" --distinct-ids "$persons" --span "$((days * 24))h" --connections 8 --server-pid "$server"
    stop
fi
start "$data"
"$python" "$here/bench_read.py" "$url" "$data" "$rounds" "$server"
"$python" "$here/bench_sql.py" "$url" "$data" 7 "$server"
WEIR_BENCH_DAYS=$days "$python" "$here/bench_insights.py" "$url" "$data" 3 "$server"
