//! Server start: output of the first start, traces of a failed start, and the error messages of refused ones.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::harness::{TOKEN, TestServer, binary, patiently};

/// `weir serve` on the command line of a user, without keys in the environment.
fn serve(data_dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(["serve", "--data-dir"]).arg(data_dir);
    command.env_remove("WEIR_PROJECT_API_KEY").env_remove("WEIR_PERSONAL_API_KEY");
    command.stdin(Stdio::null());
    command
}

/// The output of a start that fails.
fn refused(mut command: Command) -> String {
    let output = command.output().expect("weir");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{stderr}");
    assert_eq!(output.stdout, b"", "nothing is shown");
    stderr
}

/// Starts a server, waits for its output, and shuts it down.
fn shown(data_dir: &Path, until: &str) -> String {
    let out = data_dir.with_extension("stdout");
    let mut process: Child = serve(data_dir)
        .args(["--listen", "127.0.0.1:0"])
        .stdout(File::create(&out).expect("a file"))
        .stderr(Stdio::null())
        .spawn()
        .expect("weir");
    let text = patiently(|| {
        let text = std::fs::read_to_string(&out).expect("the output");
        text.contains(until).then_some(text)
    });
    let id = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("SIGTERM");
    let status = process.wait().expect("the end");
    assert!(status.success(), "{status}");
    text.unwrap_or_else(|| panic!("no {until:?} was shown"))
}

fn word_after<'t>(text: &'t str, before: &str) -> &'t str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}"));
    rest.split_whitespace().next().expect("a word")
}

/// Goal: the keys are printed once a server runs, however many starts have failed. Method: the port is in use
/// at the first start.
#[test]
fn a_start_without_its_port_leaves_nothing_and_the_next_shows_the_keys() {
    let own = tempfile::tempdir().expect("a directory");
    let data_dir = own.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut first = serve(&data_dir);
    first.args(["--listen", &address]);
    let said = refused(first);
    for once in ["cannot listen on", &address, "in use"] {
        assert_eq!(said.matches(once).count(), 1, "{once}: {said}");
    }
    assert!(!data_dir.exists(), "a failed start leaves a directory");

    let text = shown(&data_dir, "persons/");
    let token = word_after(&text, "project API key (SDKs send with it):");
    let key = word_after(&text, "personal API key (shown only this time):");
    assert!(token.starts_with("phc_") && key.starts_with("phx_"), "{text}");

    let again = shown(&data_dir, "weir keys create LABEL");
    assert_eq!(word_after(&again, "project API key (SDKs send with it):"), token);
    assert!(again.starts_with("weir listens on http://127.0.0.1:"), "{again}");
    assert!(!again.contains("phx_"), "{again}");
    // The line works as shown.
    let line = again.lines().find_map(|line| line.split_once("weir keys create LABEL"));
    let (_, options) = line.expect("a line to try");
    let mut create = Command::new(binary());
    create.args(["keys", "create", "laptop"]).args(options.split_whitespace());
    let output = create.output().expect("weir");
    assert!(output.stdout.starts_with(b"phx_"), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Another token than the project has would cut off clients that send with the stored one.
#[test]
fn another_project_api_key_in_the_settings_is_refused() {
    let mut server = TestServer::start();
    server.stop();
    let mut other = server.weir(&["serve", "--listen", "127.0.0.1:0"]);
    other.env("WEIR_PROJECT_API_KEY", "phc_other_token");
    let said = refused(other);
    for part in ["WEIR_PROJECT_API_KEY", TOKEN, "reset_token"] {
        assert!(said.contains(part), "{said}");
    }
    server.restart();
    let event = json!([{"event": "x", "distinct_id": "a"}]);
    assert_eq!(server.capture(&event).status, 200, "the stored one holds");
    server.stop();
    let mut broken = serve(&server.data_dir().with_extension("new"));
    broken.env("WEIR_PROJECT_API_KEY", "phx_mixed-up");
    assert!(refused(broken).contains("the project API key starts with phx_"));
    assert!(!server.data_dir().with_extension("new").exists());
}

/// The error of an invalid setting names the setting and its source, before anything else is done.
#[test]
fn settings_that_make_no_sense_are_refused_with_their_origin() {
    let own = tempfile::tempdir().expect("a directory");
    let data_dir = own.path().join("data");
    for (setting, value, problem) in [
        ("queries-max", "0", "from 1 to 10000"),
        ("query-timeout", "0s", "from 100ms to 1d"),
        ("memtable-max-bytes", "1", "from 64KiB to 64GiB"),
        ("memtable-max-bytes", "lots", "no size"),
        ("compaction-interval", "5", "no time"),
        ("frozen-memtables-max", "0", "from 1 to 64"),
        ("decode-threads", "-1", "from 1 to 1024"),
        ("key-requests-per-hour-max", "0", "from 1 to 4294967295"),
        ("log", "verbose", "neither a level"),
        ("log", "weir::htpp=debug", "weir::http"),
        ("log-format", "xml", "text, json"),
        ("public-url", "events.example.com", "URL"),
        ("trusted-proxies", "everybody", "everybody"),
        ("listen", "8000", "socket address"),
        ("static-dir", "/nonexistent/dist", "there is no directory /nonexistent/dist"),
        ("geoip-file", "/nonexistent.mmdb", "there is no file /nonexistent.mmdb"),
        ("body-max-bytes", "200MiB", "body-plain-max-bytes"),
        ("wal-max-bytes", "100MiB", "wal-segment-max-bytes"),
    ] {
        let flag = format!("--{setting}");
        let mut command = serve(&data_dir);
        command.arg(format!("{flag}={value}"));
        let by_flag = refused(command);
        let variable = format!("WEIR_{}", setting.replace('-', "_").to_uppercase());
        let mut command = serve(&data_dir);
        command.env(&variable, value);
        let by_variable = refused(command);
        let file = own.path().join("weir.toml");
        std::fs::write(&file, format!("{setting} = \"{value}\"\n")).expect("a file");
        let mut command = serve(&data_dir);
        command.arg("--config").arg(&file);
        let by_file = refused(command);
        let key = format!("{setting} in the file {}", file.display());
        for (said, origin) in [(by_flag, flag), (by_variable, variable), (by_file, key)] {
            assert!(said.contains(&origin) && said.contains(problem), "{origin} {value}: {said}");
        }
    }
    assert!(!data_dir.exists(), "a start that is refused leaves a directory");
}
