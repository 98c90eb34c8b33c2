#!/usr/bin/env bash
# All checks, cheap ones first: format, source rules, lints, then the tests, which drive a real server with
# released SDKs and read its files with other engines. Settings, all optional:
#   CARGO_TARGET_DIR  where builds go (default ~/.cache/weir/target: dependencies are built once, for all checkouts)
#   WEIR_TOOLS        where SDKs and table readers are installed (default ~/.cache/weir/tools)
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/weir/target}
step() { printf '\n== %s\n' "$*"; }

step tools
missing=()
command -v cargo >/dev/null || { echo "cargo is missing: see https://rustup.rs" >&2; exit 1; }
command -v cc >/dev/null && command -v make >/dev/null || missing+=(build-essential)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v git >/dev/null || missing+=(git)
command -v systemd-analyze >/dev/null || missing+=(systemd)
[ -n "$(find /usr/lib/postgresql -name initdb 2>/dev/null)" ] || missing+=(postgresql)
command -v psql >/dev/null || missing+=(postgresql-client)
command -v isql >/dev/null || missing+=(unixodbc)
[ -n "$(find /usr/lib -name psqlodbcw.so 2>/dev/null)" ] || missing+=(odbc-postgresql)
command -v openssl >/dev/null || missing+=(openssl)
command -v haproxy >/dev/null || missing+=(haproxy)
# Without it, Debian's Node trusts no certificate.
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "the tests need these packages, please install them: ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
for component in rustfmt clippy; do
    cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
done
scripts/test-tools.sh

step format and source rules
cargo fmt --all --check
tidy=$(mktemp)
CARGO_MANIFEST_DIR=$PWD rustc --edition 2024 --test -o "$tidy" tests/tidy.rs
"$tidy" --quiet
rm "$tidy"

# Members without optimization, which takes a seventh of the time to build, over optimized dependencies, which a release has, too.
quick=$(scripts/unoptimized.sh)
build=(--release --locked --workspace --config "$quick")

# The driver of the lints is the compiler with more checks, so what it builds is what the tests run. Cargo keeps it apart from
# what the compiler itself has built.
step build and lints
RUSTC_WORKSPACE_WRAPPER=$(rustc --print sysroot)/bin/clippy-driver
export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS=-Dwarnings
cargo build "${build[@]}" --all-targets

# One PostgreSQL server for all tests; some start another one, which they stop.
step PostgreSQL
place=$(mktemp -d)
chmod 755 "$place"
trap 'scripts/postgres.sh remove "$place/server"; rm -rf "$place"' EXIT
WEIR_TEST_POSTGRES=$(scripts/postgres.sh start "$place/server")
export WEIR_TEST_POSTGRES

step tests
# Many tests wait for a server: with more at once than cores, none of these is idle.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))}
cargo test "${build[@]}" --no-fail-fast

# Once more with the metadata in PostgreSQL: all tests of the store, and those of the server that use it most.
step tests on PostgreSQL
export WEIR_TEST_METADATA=postgres
metadata=$(cargo test "${build[@]}" --lib --no-run 2>&1 | sed -n 's|^ *Executable .*(\(.*/weir_metadata-[^)]*\))$|\1|p')
"$metadata"
cargo test "${build[@]}" --no-fail-fast --test server -- accounts:: activity:: cohorts:: dashboards:: definitions:: \
    documents:: early_access:: event_definitions:: feature_flags:: flag_management:: flag_rights:: flags:: groups:: \
    isolation:: local_evaluation:: property_definitions:: rights:: saved_insights:: scheduled_changes:: sessions:: sharing::
