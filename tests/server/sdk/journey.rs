//! The way of a new user: from what the first start in an empty directory prints to a dashboard that a stranger sees.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::{binary, patiently};
use crate::sdk::drivers::of_kind;
use crate::sdk::{drivers, tools};

/// Until when steps have to be taken, in milliseconds since the link was opened.
const STEPS: [(&str, u64); 7] = [
    ("waiting", 120_000),
    ("arrived", 120_000),
    ("live", 300_000),
    ("events", 300_000),
    ("persons", 300_000),
    ("saved", 300_000),
    ("shared", 300_000),
];

/// `weir serve` without settings, in a directory of its own; it is stopped when this is dropped.
struct FirstStart(Child);

impl FirstStart {
    fn run(directory: &Path, settings: &[(&str, &Path)]) -> (Self, String) {
        let out = directory.join("stdout");
        let mut command = Command::new(binary());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
            command.env_remove(name);
        }
        command.envs(settings.iter().copied());
        command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(directory);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let process = command.stdout(File::create(&out).expect("a file")).spawn().expect("weir");
        let own = Self(process);
        let said = patiently(|| {
            let text = std::fs::read_to_string(&out).expect("the output");
            text.contains("persons/").then_some(text)
        });
        (own, said.expect("what the first start prints"))
    }
}

impl Drop for FirstStart {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Takes every step of the driver with a server of these settings.
fn go(settings: &[(&str, &Path)]) {
    let tools = tools();
    let directory = tempfile::tempdir().expect("a directory");
    let (_server, said) = FirstStart::run(directory.path(), settings);
    let link = said.split_whitespace().find(|word| word.contains("/login?link="));
    let mut command = Command::new(tools.join("nodejs/bin/node"));
    command.arg(drivers::source("journey.mjs")).arg(tools.join("posthog-js/node_modules"));
    command.arg(link.expect("a link"));
    command.args(std::env::var_os("WEIR_TEST_PICTURES"));
    let said = drivers::drive_without_complaint("journey.mjs", command);
    let steps = of_kind(&said, "step").map(|step| (step["what"].as_str(), step["millis"].as_u64()));
    let steps: Vec<_> = steps.collect();
    assert_eq!(steps.len(), STEPS.len(), "{steps:?}");
    for ((what, millis), (expected, limit)) in steps.iter().zip(STEPS) {
        assert_eq!(*what, Some(expected));
        assert!(millis.is_some_and(|millis| millis < limit), "{what:?}: {millis:?}");
    }
}

#[test]
fn a_new_user_gets_from_the_first_start_to_a_shared_dashboard() {
    go(&[]);
}

#[test]
fn a_new_user_gets_there_with_the_sdk_of_the_server() {
    let scripts = tools().join("posthog-js/node_modules/posthog-js/dist");
    go(&[("WEIR_STATIC_DIR", &scripts)]);
}
