//! The snippet that people paste into their websites, in Chromium, while the server is stopped, hangs or is slow: the page
//! shows, calls are taken, and what they said arrives once the server answers.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{KEY, TestServer};
use crate::sdk::drivers::of_kind;
use crate::sdk::{drivers, tools};

/// Within which a page has loaded, in milliseconds. The slow server answers after 8 seconds, the others not at all.
const LOADED_MILLIS: u64 = 5_000;

#[test]
fn a_page_with_the_snippet_never_waits_for_the_server() {
    let tools = tools();
    let scripts = tools.join("posthog-js/node_modules/posthog-js/dist");
    let server = TestServer::start_with(&[("WEIR_STATIC_DIR", &scripts.display().to_string())]);
    let mut command = Command::new(tools.join("nodejs/bin/node"));
    command.arg(drivers::source("snippet.mjs")).arg(tools.join("posthog-js/node_modules"));
    command.args([&server.url(), KEY]);
    let said = drivers::drive_without_complaint("snippet.mjs", command);
    let states = ["stopped", "hanging", "slow"];
    let visits: Vec<&Value> = of_kind(&said, "visit").collect();
    assert_eq!(visits.iter().map(|visit| &visit["state"]).collect::<Vec<_>>(), states);
    for visit in visits {
        assert!(visit["millis"].as_u64().is_some_and(|millis| millis < LOADED_MILLIS), "{visit}");
        assert_eq!(visit["callable"], json!(["capture", "identify"]), "{visit}");
    }
    let arrived: Vec<&Value> = of_kind(&said, "arrived").collect();
    assert_eq!(arrived.iter().map(|arrived| &arrived["state"]).collect::<Vec<_>>(), states);
    for arrived in arrived {
        assert_eq!(arrived["events"], json!(["early", "later"]), "{arrived}");
    }
    let missing: Vec<&Value> = of_kind(&said, "missing").collect();
    assert!(missing.is_empty(), "methods of the SDK that cannot be called at once: {missing:?}");
}
