#!/usr/bin/env bash
# Installs the SDKs, table readers and data that the integration tests drive, each at one version, outside
# of the source tree. Does nothing if they are there. Prints the directory.
#
#   $WEIR_TOOLS (default ~/.cache/weir/tools)
#     sdk-new/ sdk-old/   Python environments with the current and an old major of `posthog`
#     readers/            Python environment with engines that open the tables
#     node/               node_modules with posthog-node
#     geoip/              databases of places that MaxMind tests its readers with
set -euo pipefail

tools=${WEIR_TOOLS:-$HOME/.cache/weir/tools}
mkdir -p "$tools"

# One installation at a time; the lock ends with the process.
exec 9>"$tools/lock"
flock 9

# A directory is complete once its `pinned` file says what it holds.
is_complete() { [[ -f "$tools/$1/pinned" && "$(<"$tools/$1/pinned")" == "$2" ]]; }

python_env() {
    local name=$1 pins=${*:2}
    is_complete "$name" "$pins" && return
    echo "installing $name: $pins" >&2
    rm -rf "${tools:?}/$name"
    python3 -m venv "$tools/$name"
    "$tools/$name/bin/pip" install --quiet --disable-pip-version-check "${@:2}" >&2
    echo "$pins" >"$tools/$name/pinned"
}

node_env() {
    local name=$1 pins=${*:2}
    is_complete "$name" "$pins" && return
    echo "installing $name: $pins" >&2
    rm -rf "${tools:?}/$name"
    mkdir -p "$tools/$name"
    npm install --silent --no-audit --no-fund --prefix "$tools/$name" "${@:2}" >&2
    echo "$pins" >"$tools/$name/pinned"
}

# MaxMind's test databases come with the source of its Python package.
geoip_databases() {
    local pins="geoip2==$1"
    is_complete geoip "$pins" && return
    echo "installing geoip: $pins" >&2
    rm -rf "${tools:?}/geoip"
    mkdir -p "$tools/geoip"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
        --dest "$tools/geoip" "$pins" >&2
    tar -xzf "$tools/geoip/geoip2-$1.tar.gz" -C "$tools/geoip" --strip-components=4 \
        "geoip2-$1/tests/data/test-data"
    echo "$pins" >"$tools/geoip/pinned"
}

python_env sdk-new posthog==7.91.1
python_env sdk-old posthog==3.25.0
python_env readers duckdb==2.0.0 polars==2.1.0 deltalake==1.6.6 pyarrow==26.0.1
node_env node posthog-node@5.70.0
geoip_databases 5.1.0

echo "$tools"
