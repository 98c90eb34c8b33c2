#!/usr/bin/env bash
# Writes settings for `cargo --config` that leave the members of the workspace unoptimized in the release profile, and
# prints where, with as many codegen units as the argument says: such builds share the dependencies of a release, and take a seventh of the time.
set -euo pipefail
cd "$(dirname "$0")/.."
units=${1:-16}
# A name for each content: cargo reads the file at each call, and others may call at the same time.
file=${CARGO_TARGET_DIR:-target}/unoptimized-$units.toml
mkdir -p "$(dirname "$file")"
{
    for member in weir $(sed -n 's|^    "src/\(.*\)",$|weir-\1|p' Cargo.toml); do
        printf '[profile.release.package.%s]\nopt-level = 0\ndebug = false\ncodegen-units = %s\n' "$member" "$units"
    done
} >"$file"
echo "$file"
