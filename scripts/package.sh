#!/usr/bin/env bash
# Makes the packages of one build of the program; src/guide/install.md says what is in each of them.
#
#   scripts/package.sh [--out DIR] [--binary FILE | --glibc VERSION] [--level LEVEL] [FORMAT...]
#
#   FORMAT   tar, wheel, npm, deb, image; all of them if none is named
#   --out    where packages go [default: packages, under cargo's directory of builds]
#   --binary packs this program instead of building one
#   --glibc  builds for systems with this version of glibc or a newer one, such as 2.28, by zig, which is taken from PyPI;
#            without it, a system needs the newest version whose symbols the program finds on this machine, and uses
#   --level  of compression, 0 to 9 [default: 9]
#
# Needs cargo, binutils and Python 3; `dpkg-deb` for the format deb. The same program makes the same bytes: everything in a
# package has the time of the commit, or that of SOURCE_DATE_EPOCH.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out= binary= glibc=
pack=()
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=$2 && shift 2 ;;
    --binary) binary=$2 && shift 2 ;;
    --glibc) glibc=$2 && shift 2 ;;
    --level) pack+=(--level "$2") && shift 2 ;;
    tar | wheel | npm | deb | image) pack+=("$1") && shift ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2 && exit 2 ;;
    esac
done

# Lines of the source in traces, of the members; these go into the file with symbols.
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only

# cargo-zigbuild runs cargo with a compiler and a linker that know the symbols of each version of glibc.
zigbuild() {
    local tools=$target/zigbuild triple
    triple=$(uname -m)-unknown-linux-gnu
    if [ ! -e "$tools/complete" ]; then
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check ziglang==0.17.1 cargo-zigbuild==0.24.0
        touch "$tools/complete"
    fi
    PATH=$tools/bin:$PATH "$tools/bin/cargo-zigbuild" zigbuild --manifest-path "$root/Cargo.toml" --release --locked --bin weir \
        --target "$triple.$1" --target-dir "$target"
    binary=$target/$triple/release/weir
}

if [ -n "$binary" ]; then
    :
elif [ -n "$glibc" ]; then
    zigbuild "$glibc"
else
    cargo build --manifest-path "$root/Cargo.toml" --release --locked --bin weir --target-dir "$target"
    binary=$target/release/weir
fi
exec python3 "$root/scripts/package.py" --binary "$binary" --out "${out:-$target/packages}" "${pack[@]}"
