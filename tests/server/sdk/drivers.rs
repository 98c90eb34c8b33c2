//! The driver programs under `tests/sdk`: how they are started, and their output.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use parking_lot::Mutex;
use serde_json::Value;

/// Drivers that run concurrently. Each is CPU-bound, and the server needs a core as well.
const CONCURRENT: usize = 3;

/// The SDK that a program drives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sdk {
    /// The Python environment, and the compression.
    Python(&'static str, &'static str),
    /// The `node_modules`, and the compression.
    Node(&'static str, &'static str),
    /// The protocol that is compiled in, and the compression.
    Rust(&'static str, &'static str),
    /// How the browser loads the SDK.
    Browser(&'static str),
}

/// Name of a driver, and its output.
pub(super) type Said = (&'static str, Vec<Value>);

/// Installs missing tools; returns their directory.
pub(crate) fn tools() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test-tools.sh");
    let output = Command::new(script).stderr(Stdio::inherit()).output().expect("test-tools.sh");
    assert!(output.status.success(), "the SDKs cannot be installed: {}", output.status);
    PathBuf::from(String::from_utf8(output.stdout).expect("UTF-8").trim_end())
}

/// The path of a program under `tests/sdk`.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(name)
}

/// Runs every driver to its end, a few at a time. `keys` are the project key and a personal key.
pub(super) fn run(
    tools: &Path,
    drivers: &[(&'static str, Sdk)],
    url: &str,
    keys: (&str, &str),
) -> Vec<Said> {
    let waiting: Mutex<VecDeque<_>> = Mutex::new(drivers.iter().copied().collect());
    let said = Mutex::new(Vec::new());
    let next = || waiting.lock().pop_front();
    let work = || {
        while let Some((who, sdk)) = next() {
            let lines = drive(who, command(tools, (who, sdk), url, keys));
            said.lock().push((who, lines));
        }
    };
    thread::scope(|scope| {
        for _ in 0..CONCURRENT {
            scope.spawn(work);
        }
    });
    said.into_inner()
}

fn command(
    tools: &Path,
    (who, sdk): (&str, Sdk),
    url: &str,
    (key, personal): (&str, &str),
) -> Command {
    let node = |script: &str, modules: &str| {
        let mut command = Command::new(tools.join("nodejs/bin/node"));
        command.arg(source(script)).arg(tools.join(modules).join("node_modules"));
        command
    };
    let mut command = match sdk {
        Sdk::Python(environment, _) => {
            let mut command = Command::new(tools.join(environment).join("bin/python"));
            command.arg(source("python.py"));
            command
        }
        Sdk::Node(modules, _) => node("node.mjs", modules),
        Sdk::Browser(_) => node("browser.mjs", "posthog-js"),
        Sdk::Rust(protocol, _) => Command::new(tools.join("posthog-rs").join(protocol)),
    };
    command.args([url, key]);
    match sdk {
        Sdk::Python(_, coding) | Sdk::Node(_, coding) => {
            let protocol = if coding.starts_with("v1-") { "v1" } else { "v0" };
            command.args([who, coding]).env("POSTHOG_CAPTURE_MODE", protocol);
        }
        Sdk::Rust(_, coding) => {
            command.args([who, coding]);
        }
        Sdk::Browser(variant) => {
            command.args([personal, who, variant]);
        }
    }
    command
}

/// Runs a driver to its end; returns its output. It must not fail.
pub(super) fn drive(who: &str, mut command: Command) -> Vec<Value> {
    let output = command.output().unwrap_or_else(|error| panic!("{who} does not start: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{who}: {}\n{stderr}", output.status);
    lines(&output.stdout)
}

/// What a driver says, which has no complaint.
pub(super) fn drive_without_complaint(who: &str, command: Command) -> Vec<Value> {
    let said = drive(who, command);
    let complaints: Vec<String> = of_kind(&said, "complaint").map(ToString::to_string).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    said
}

/// Lines of JSON.
pub(super) fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The lines of one kind.
pub(super) fn of_kind<'a>(said: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    said.iter().filter(move |what| what["kind"] == kind)
}
