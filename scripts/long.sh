#!/usr/bin/env bash
# The long forms of tests that scripts/test.sh shortens: some hours, on two cores. Whoever changes the log, images of persons,
# or how questions are answered runs them; further words name one of the parts.
#
#   scripts/long.sh [explore|images|outages|followers|shards|answers|oracle|jdbc|engines]...
#
#   explore   all orders of the requests of three writers to a log in a bucket (minutes)
#   images    500 images of persons under load, each of which opens and equals (minutes)
#   outages   PostgreSQL away for 30 s; the bucket away for 60 s, with the log in it and without, and slow as long with the
#             log in it (minutes)
#   followers an hour of kills and hangs of three servers, of which two follow the one that writes
#   shards    an hour of kills, hangs and ends in order of three nodes with six shards
#   answers   2,000 questions of each kind and of SQL, asked of one server, of one that follows, and of any node of a cluster
#             (half an hour)
#   jdbc      the driver of PostgreSQL for Java, for which a JDK is installed (a minute)
#   engines   ClickHouse and Spark over the tables, for which 1.4 GB and a JRE are installed (minutes)
#   oracle    100,000 questions of each kind beside an independent computation (hours)
#
# Settings as for scripts/test.sh, which has to have run once: it installs what the tests need.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/weir/target}

unit() { cargo test --release --locked -p "$1" --lib -- "${@:2}"; }
server() { cargo test --release --locked --test server -- "$@"; }

[ $# -gt 0 ] || set -- explore images outages followers shards answers oracle jdbc engines
for part in "$@"; do
    printf '\n== %s\n' "$part"
    case $part in
    explore) WEIR_EXPLORE=long unit weir-storage object_log::tests::explored ;;
    images) WEIR_TEST_IMAGES=500 unit weir-identity tests::images ;;
    outages)
        WEIR_TEST_POSTGRES_OUTAGE_SECONDS=30 WEIR_TEST_BUCKET_OUTAGE_SECONDS=60 server --test-threads=1 \
            postgres::an_outage_of_postgresql_stops_changes_only s3::a_store_that_is_away \
            standby::a_store_that_fails standby::a_slow_store
        ;;
    followers) WEIR_TEST_FOLLOWERS_OUTAGE_SECONDS=3600 server followers::faults_hide_no_write ;;
    shards) WEIR_TEST_SHARDS_OUTAGE_SECONDS=3600 server shards::faults ;;
    answers) WEIR_ORACLE_QUESTIONS=2000 server shards::answers ;;
    jdbc)
        jar=/usr/share/java/postgresql.jar
        if ! command -v javac >/dev/null || [ ! -e "$jar" ]; then
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jdk-headless libpostgresql-jdbc-java
        fi
        WEIR_TEST_JDBC=$jar server postgres_port::clients::jdbc
        ;;
    engines)
        if ! command -v java >/dev/null; then
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jre-headless
        fi
        engines=${WEIR_TOOLS:-$HOME/.cache/weir/tools}/engines
        pins=(chdb==4.4.0 pyspark==4.3.0)
        if [[ ! -f "$engines/pinned" || "$(<"$engines/pinned")" != "${pins[*]}" ]]; then
            rm -rf "$engines"
            python3 -m venv "$engines"
            "$engines/bin/python" -m pip install --quiet --disable-pip-version-check "${pins[@]}"
            echo "${pins[*]}" >"$engines/pinned"
        fi
        WEIR_TEST_ENGINES=$engines/bin/python server engines::tables
        ;;
    oracle) WEIR_ORACLE_QUESTIONS=100000 server --test-threads=2 oracle:: correlation:: ;;
    *)
        sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
        exit 2
        ;;
    esac
done
