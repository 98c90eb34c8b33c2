//! The README and the guide: every `sh` block of a page runs, in the order of the page, in a shell and a directory of its
//! own. What a page starts are real servers; buckets are those of moto, and databases those of a PostgreSQL server.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::harness::{KEY, TOKEN, binary};
use crate::sdk::tools;
use crate::support::bucket::{BUCKET, Moto};
use crate::support::postgres::Postgres;

/// Longest time for a page, in seconds, on a machine that is busy with other tests.
const LIMIT_SECONDS: &str = "480";

/// Languages of blocks that are shown and not run. Commands that no test can run are `console`.
const SHOWN: [&str; 3] = ["console", "sql", "text"];

/// What the shell has in front of the blocks. A page starts a server in a terminal of its own: here it runs beside the
/// script, which waits until it serves or stands by. `curl` fails where a response is an error. `aws s3 sync` copies
/// within the bucket, as far as pages use it.
const SHELL: &str = r#"
set -euo pipefail
PATH=$PROGRAMS:$PATH
at=setup
servers=()
end_servers() {
    local place failed=0
    for ((place = ${#servers[@]} - 1; place >= 0; place--)); do
        kill -TERM "${servers[place]}" 2>/dev/null || true
        wait "${servers[place]}" || failed=$?
    done
    servers=()
    return $failed
}
finish() {
    local status=$?
    [ $status = 0 ] || echo "$at fails with $status" >&2
    end_servers || true
    exit $status
}
trap finish EXIT
weir() {
    if [ "$1" != serve ] || [ "${2-}" = --help ]; then
        command weir "$@"
        return
    fi
    local address=$WEIR_LISTEN last= argument status
    for argument in "$@"; do
        [ "$last" != --listen ] || address=$argument
        last=$argument
    done
    command weir "$@" >>server.log 2>&1 &
    local process=$!
    servers+=("$process")
    for look in $(seq 1200); do
        kill -0 "$process" 2>/dev/null || { echo "the server ended" >&2; return 1; }
        status=$(command curl --silent --output readiness --write-out '%{http_code}' "http://$address/_readiness" || true)
        # A server stands by before it serves, too: for as long as a takeover takes, and longer on a busy machine.
        if [ "$status" = 200 ] || { [ "$look" -gt 100 ] && grep -q standing_by readiness; }; then
            return
        fi
        sleep 0.1
    done
    echo "the server does not become ready" >&2
    return 1
}
curl() {
    case " $* " in
    *' --fail '*) command curl --silent --show-error "$@" ;;
    *) command curl --silent --show-error --fail-with-body "$@" ;;
    esac
}
aws() {
    [ "$1 $2" = "s3 sync" ]
    "$MOTO_PYTHON" -c '
import boto3, sys
(bucket, source), (target_bucket, target) = (url.removeprefix("s3://").split("/", 1) for url in sys.argv[1:])
store = boto3.client("s3")
for page in store.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=source + "/"):
    for key in (found["Key"] for found in page.get("Contents", [])):
        store.copy_object(Bucket=target_bucket, Key=target + key[len(source):], CopySource={"Bucket": bucket, "Key": key})
' "$3" "$4"
}
has_events() { # data directory, number: of one whose metadata are in a file, or that a server has
    local found
    found=$(env -u WEIR_METADATA_URL weir query --data-dir "$1" --format csv 'SELECT count(*) FROM events' | tail -1)
    [ "$found" = "$2" ] || { echo "$1 has $found events, not $2" >&2; return 1; }
}
event() { # URL
    curl "$1/capture/" -H 'Content-Type: application/json' \
        -d '{"api_key": "'$TOKEN'", "event": "kept", "distinct_id": "ada"}'
}
"#;

/// A page, and what it needs.
struct Page {
    /// Its path from the root of the repository.
    path: &'static str,
    /// The Python environment of the tools whose packages it uses.
    python: &'static str,
    /// What has happened before.
    before: &'static str,
    /// What holds afterwards.
    after: &'static str,
    /// Whether it needs a bucket, and a database.
    stores: bool,
}

/// A page with a server that runs from the beginning.
const fn page(path: &'static str) -> Page {
    Page { path, python: "readers", before: "weir serve", after: "", stores: false }
}

/// A test for each page with blocks, and the list of these pages.
macro_rules! pages {
    ($($name:ident $page:expr;)*) => {
        const PAGES: &[Page] = &[$($page,)*];
        $(
            #[test]
            fn $name() {
                run(&$page);
            }
        )*
    };
}

pages! {
    readme Page { before: "", after: "has_events weir-data 1", ..page("README.md") };
    sdks Page {
        python: "posthog-7",
        before: "ln -s \"$TOOLS/posthog-js/node_modules/posthog-js\" package; weir serve",
        after: "curl $URL/static/array.js >array.js; grep -q posthog array.js",
        ..page("src/guide/sdks.md")
    };
    imports page("src/guide/imports.md");
    posthog Page { before: "weir serve; event $URL", ..page("src/guide/posthog.md") };
    assistants Page { before: "weir serve; event $URL", ..page("src/guide/assistants.md") };
    persons page("src/guide/persons.md");
    flags page("src/guide/flags.md");
    queries page("src/guide/queries.md");
    insights page("src/guide/insights.md");
    the_page page("src/guide/page.md");
    tables page("src/guide/tables.md");
    engines page("src/guide/engines.md");
    operations Page { before: "", ..page("src/guide/operations.md") };
    postgres Page { stores: true, ..page("src/guide/postgres.md") };
    bucket Page {
        before: "weir serve; event $URL",
        after: "has_events weir-data 1; has_events events-data 5000",
        stores: true,
        ..page("src/guide/bucket.md")
    };
    standby Page { before: "", after: "event $URL; has_events a 2", stores: true, ..page("src/guide/standby.md") };
    shards Page {
        before: "",
        after: "event $URL; [ $(weir shards list | grep -c serves) = 3 ]",
        stores: true,
        ..page("src/guide/cluster.md")
    };
    backup Page {
        before: r#"
weir serve
event $URL
WEIR_STORAGE_URL=s3://bucket/prefix weir serve --data-dir tables-data --listen 127.0.0.1:8001
event http://127.0.0.1:8001
WEIR_STORAGE_URL=s3://bucket/pair WEIR_STORAGE_LOG=bucket WEIR_METADATA_URL=postgres://weir@db.example.com/weir \
    weir serve --data-dir active --listen 127.0.0.1:8002
event http://127.0.0.1:8002
"#,
        after: "has_events weir-data 1; has_events tables-restored 1; has_events empty 1",
        stores: true,
        ..page("src/guide/backup.md")
    };
}

/// A block that is run.
struct Block {
    /// Its first line, from 1.
    line: usize,
    /// Whether no server runs at its begin.
    is_stopped: bool,
    text: String,
}

/// The blocks of a page that are run. All others are in a language that is only shown.
fn blocks(path: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let inside: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| line.trim_start() != "```")
            .collect();
        let (language, how) = language.split_once(' ').unwrap_or((language, ""));
        if language == "sh" {
            assert!(matches!(how, "" | "stopped"), "{path}:{number}: {how}");
            let text = inside.join("\n");
            blocks.push(Block { line: number + 1, is_stopped: how == "stopped", text });
        } else {
            assert!(SHOWN.contains(&language), "{path}:{number}: a block in no language");
        }
    }
    blocks
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs all blocks of a page.
fn run(page: &Page) {
    let tools = tools();
    let work = tempfile::tempdir().expect("a directory");
    let programs = work.path().join("bin");
    std::fs::create_dir(&programs).expect("a directory");
    std::os::unix::fs::symlink(binary(), programs.join("weir")).expect("a link");
    let python = tools.join(page.python).join("bin");
    let path = format!("{}:{}", programs.display(), python.display());

    let stores = page.stores.then(|| (Moto::start(), Postgres::start()));
    let stores = stores.as_ref().map(|(moto, postgres)| (moto.gate(), postgres.database()));
    // All at once, so that they are different.
    let free = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [first, second, third] =
        free.map(|free| free.local_addr().expect("an address").to_string());

    let mut script = format!("{SHELL}{}\n", page.before);
    for Block { line, is_stopped, text } in blocks(page.path, &read(page.path)) {
        let end = if is_stopped { "end_servers\n" } else { "" };
        script.push_str(&format!("at={}:{line}\n{end}{text}\n", page.path));
    }
    script.push_str(&format!("at='{} at its end'\n{}\n", page.path, page.after));
    for (shown, own) in [
        ("127.0.0.1:8000", first.as_str()),
        ("127.0.0.1:8001", second.as_str()),
        ("127.0.0.1:8002", third.as_str()),
        ("phc_...", TOKEN),
        ("phx_...", KEY),
        ("s3://bucket/", &format!("s3://{BUCKET}/")),
    ] {
        script = script.replace(shown, own);
    }

    let mut shell = Command::new("timeout");
    shell.args([LIMIT_SECONDS, "bash", "-c"]).current_dir(work.path());
    shell
        .env("PROGRAMS", path)
        .env("TOOLS", &tools)
        .env("MOTO_PYTHON", tools.join("moto/bin/python"));
    shell.env("URL", format!("http://{first}")).env("TOKEN", TOKEN).env("KEY", KEY);
    shell.env("WEIR_LISTEN", &first);
    shell.env("WEIR_PROJECT_API_KEY", TOKEN).env("WEIR_PERSONAL_API_KEY", KEY);
    if let Some((gate, database)) = &stores {
        for url in
            ["weir:secret@db.example.com/weir?sslmode=verify-full", "weir@db.example.com/weir"]
        {
            script = script.replace(&format!("postgres://{url}"), &database.url());
        }
        shell.env("AWS_ENDPOINT_URL", gate.url()).env("AWS_ALLOW_HTTP", "true");
        shell.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        shell.env("AWS_REGION", "us-east-1").env("AWS_DEFAULT_REGION", "us-east-1");
    }
    let output = shell.arg(&script).output().expect("bash");
    let said = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let lines: Vec<&str> = text.lines().rev().take(40).collect();
        lines.into_iter().rev().map(|line| format!("{line}\n")).collect::<String>()
    };
    assert!(
        output.status.success(),
        "{}: {}\n{}\nbefore:\n{}\nthe servers said:\n{}",
        page.path,
        output.status,
        said(&output.stderr),
        said(&output.stdout),
        said(&std::fs::read(work.path().join("server.log")).unwrap_or_default())
    );
}

/// Goal: no page is left out. Method: the pages with blocks are those with a test.
#[test]
fn every_page_with_blocks_is_run() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let names = std::fs::read_dir(directory)
        .expect("the guide")
        .map(|file| file.expect("a file").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    let pages = names.filter(|name| name.ends_with(".md")).map(|name| format!("src/guide/{name}"));
    let all = pages.chain(["README.md".to_owned()]);
    let found: BTreeSet<String> =
        all.filter(|path| !blocks(path, &read(path)).is_empty()).collect();
    let tested: BTreeSet<String> = PAGES.iter().map(|page| page.path.to_owned()).collect();
    assert_eq!(found, tested);
}
