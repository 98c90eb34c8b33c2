#!/usr/bin/env bash
# A PostgreSQL server for tests, in a directory of its own, which root runs as the user `postgres`.
#
#   scripts/postgres.sh start DIR    makes the server in DIR, or starts the one that is there; prints its URL
#   scripts/postgres.sh start-tls DIR   the same with a certificate for `localhost`, DIR/data/server.crt
#   scripts/postgres.sh stop DIR     ends it at once, as `kill` would
#   scripts/postgres.sh remove DIR   ends it and removes DIR
#
# Text sorts by language in it, as on most servers, and nothing is synced to disk.
set -euo pipefail

what=$1 directory=$2
programs=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)
[ -n "$programs" ] || programs=$(dirname "$(command -v postgres)")

# PostgreSQL refuses to run as root.
as_postgres() {
    # Its own working directory: that of the caller may be closed to the user.
    if [ "$(id -u)" = 0 ]; then
        (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@")
    else
        (cd / && "$@")
    fi
}

case $what in
start | start-tls)
    if [ ! -e "$directory" ]; then
        mkdir -p "$directory"
        [ "$(id -u)" != 0 ] || chown postgres:postgres "$directory"
        as_postgres "$programs/initdb" --pgdata "$directory/data" --username postgres --auth trust --encoding UTF8 \
            --locale C.UTF-8 --locale-provider icu --icu-locale en-US --no-sync >"$directory.log" 2>&1 ||
            { cat "$directory.log" >&2 && exit 1; }
        rm "$directory.log"
        port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
        as_postgres tee -a "$directory/data/postgresql.conf" >/dev/null <<SETTINGS
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = ''
max_connections = 400
fsync = off
full_page_writes = off
SETTINGS
        if [ "$what" = start-tls ]; then
            as_postgres openssl req -new -x509 -days 30 -nodes -subj /CN=localhost \
                -addext subjectAltName=DNS:localhost -addext basicConstraints=CA:FALSE \
                -out "$directory/data/server.crt" -keyout "$directory/data/server.key" 2>/dev/null
            as_postgres chmod 600 "$directory/data/server.key"
            as_postgres tee -a "$directory/data/postgresql.conf" >/dev/null <<<"ssl = on"
        fi
    fi
    as_postgres "$programs/pg_ctl" --pgdata "$directory/data" --log "$directory/log" --wait start >/dev/null ||
        { cat "$directory/log" >&2 && exit 1; }
    port=$(sed -n 's/^port = //p' "$directory/data/postgresql.conf" | tail -1)
    echo "postgres://postgres@127.0.0.1:$port/postgres"
    ;;
stop)
    as_postgres "$programs/pg_ctl" --pgdata "$directory/data" --mode immediate stop >/dev/null
    ;;
remove)
    as_postgres "$programs/pg_ctl" --pgdata "$directory/data" --mode immediate stop >/dev/null || true
    rm -rf "${directory:?}"
    ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
    ;;
esac
