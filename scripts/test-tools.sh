#!/usr/bin/env bash
# Installs the SDKs, the browser, the table readers and the fuzzer that the integration tests use, each in a
# pinned version, outside of the source tree. Does nothing if they are installed. Prints the directory.
#
#   $WEIR_TOOLS (default ~/.cache/weir/tools)
#     posthog-2/ -3/ -5/ -7/            Python environments, one per major of `posthog`
#     posthog-node-4/ posthog-node-5/   node_modules with that major of `posthog-node`
#     posthog-js/                       node_modules with `posthog-js`, and `playwright-core`, which drives Chromium
#     posthog-rs/v0 posthog-rs/v1       tests/sdk/rust, built for either protocol of capture
#     openfeature-python/               Python environment with OpenFeature's SDK and its provider of remote evaluation
#     openfeature-node/                 node_modules with the same
#     opentelemetry-python/             Python environment with OpenTelemetry's SDK, its exporter, and that of `posthog`
#     mcp-python/                       Python environment with the official client of the Model Context Protocol
#     mcp-node/                         node_modules with the same for TypeScript, both of its generations
#     lz-string/                        node_modules with the JavaScript reference of LZ-string
#     axe/                              node_modules with `axe-core`, which finds what is not accessible on a page
#     geoip/                            databases of places that MaxMind tests its readers with
#     readers/                          Python environment with engines that open the tables
#     web-readers/                      Python environment with older engines, which read tables from an address
#     postgres-clients/                 Python environment with clients of PostgreSQL
#     postgres-node/                    node_modules with the client of PostgreSQL for Node
#     moto/                             Python environment with an object store in memory, for tables in a bucket
#     schemathesis/                     Python environment with the fuzzer that reads the description of the endpoints
#     nodejs/bin/node                   the Node that runs all of them: that of Debian 12 is too old for the SDKs
#
# Chromium is the package of Debian, which only root can install.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
tools=${WEIR_TOOLS:-$HOME/.cache/weir/tools}
mkdir -p "$tools"

# One installation at a time; the lock ends with the process.
exec 9>"$tools/lock"
flock 9

# A directory is complete once its `pinned` file contains its versions.
is_complete() { [[ -f "$tools/$1/pinned" && "$(<"$tools/$1/pinned")" == "$2" ]]; }

python_env() {
    local name=$1 pins=${*:2}
    is_complete "$name" "$pins" && return
    echo "installing $name: $pins" >&2
    rm -rf "${tools:?}/$name"
    python3 -m venv "$tools/$name"
    "$tools/$name/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}" >&2
    echo "$pins" >"$tools/$name/pinned"
}

node_env() {
    local name=$1 pins=${*:2}
    is_complete "$name" "$pins" && return
    echo "installing $name: $pins" >&2
    rm -rf "${tools:?}/$name"
    mkdir -p "$tools/$name"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tools/$name" "${@:2}" >&2
    echo "$pins" >"$tools/$name/pinned"
}

# The registry has the official builds of Node as packages, one per architecture.
node_itself() {
    local version=$1 machine
    case $(uname -m) in
    x86_64) machine=x64 ;;
    aarch64) machine=arm64 ;;
    *) echo "no Node for $(uname -m)" >&2 && exit 1 ;;
    esac
    node_env nodejs "node-linux-$machine@$version"
    # Only once: another process may be about to run it.
    [ -x "$tools/nodejs/bin/node" ] && return
    mkdir -p "$tools/nodejs/bin"
    ln -sfn "../node_modules/node-linux-$machine/bin/node" "$tools/nodejs/bin/node"
}

# `posthog-rs` chooses its protocol when it is compiled, so there are two programs.
rust_drivers() {
    local package=$source/tests/sdk/rust pins
    pins=$(cd "$package" && sha256sum Cargo.toml Cargo.lock src/main.rs)
    is_complete posthog-rs "$pins" && return
    echo "building posthog-rs" >&2
    mkdir -p "$tools/posthog-rs"
    rm -f "$tools/posthog-rs/pinned"
    local target=$tools/posthog-rs/target
    # Tests that cargo runs know which one it is, whatever their PATH.
    local build=("${CARGO:-cargo}" build --quiet --locked --manifest-path "$package/Cargo.toml" --target-dir "$target")
    # Settings for the compiler of whoever runs the tests are not meant for this one.
    (
        unset RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_INCREMENTAL \
            CARGO_BUILD_TARGET
        "${build[@]}" >&2
        install "$target/debug/drive" "$tools/posthog-rs/v0"
        "${build[@]}" --features capture-v1 >&2
        install "$target/debug/drive" "$tools/posthog-rs/v1"
    )
    echo "$pins" >"$tools/posthog-rs/pinned"
}

# MaxMind's test databases come with the source of its Python package.
geoip_databases() {
    local pins="geoip2==$1"
    is_complete geoip "$pins" && return
    echo "installing geoip: $pins" >&2
    rm -rf "${tools:?}/geoip"
    mkdir -p "$tools/geoip"
    # Of the package alone: pip builds it to read its metadata, and that may take its tools as they come.
    "$tools/readers/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary geoip2 \
        --dest "$tools/geoip" "$pins" >&2
    tar -xzf "$tools/geoip/geoip2-$1.tar.gz" -C "$tools/geoip" --strip-components=4 \
        "geoip2-$1/tests/data/test-data"
    echo "$pins" >"$tools/geoip/pinned"
}

chromium() {
    [ -x /usr/bin/chromium ] && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "the tests need /usr/bin/chromium, please install it" >&2
        exit 1
    fi
    echo "installing chromium" >&2
    apt-get update -qq >&2
    # It needs some font or other to draw a page.
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-liberation >&2
}

chromium
python_env posthog-2 posthog==2.5.0
python_env posthog-3 posthog==3.25.0
python_env posthog-5 posthog==5.4.0
python_env posthog-7 posthog==7.91.1 zstandard==0.25.0
# Daft reads no newer pyarrow.
python_env readers duckdb==2.0.0 polars==2.1.0 deltalake==1.6.6 pyarrow==25.0.1 pytz==2026.1 daft==0.7.26 \
    pysail==0.7.2 pyspark-client==4.2.0
python_env web-readers duckdb==1.4.4 duckdb-extension-httpfs==1.4.4 pandas==2.2.3 pyarrow==10.0.1 numpy==1.26.4 polars==0.20.31
python_env postgres-clients 'psycopg[binary]==3.3.9' asyncpg==0.32.0 sqlalchemy==2.1.9 adbc-driver-postgresql==1.13.0 \
    connectorx==0.4.6 pgcli==4.7.1 pyarrow==26.0.1
python_env moto 'moto[server]==5.2.5'
python_env schemathesis schemathesis==4.32.5 hypothesis==6.170.15
node_itself 22.23.3
node_env posthog-node-4 posthog-node@4.18.0
node_env posthog-node-5 posthog-node@5.70.0
node_env posthog-js posthog-js@1.449.2 playwright-core@1.65.1
python_env openfeature-python openfeature-sdk==0.10.0 openfeature-provider-ofrep==0.3.0
python_env opentelemetry-python posthog==7.91.1 opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2
node_env openfeature-node @openfeature/server-sdk@1.23.0 @openfeature/ofrep-core@0.1.4 @openfeature/ofrep-provider@0.1.3
python_env mcp-python mcp==2.3.0
node_env mcp-node @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0
node_env lz-string lz-string@1.5.0
node_env axe axe-core@4.14.1
node_env postgres-node pg@8.23.1 pg-cursor@2.22.1
geoip_databases 5.1.0
rust_drivers

echo "$tools"
