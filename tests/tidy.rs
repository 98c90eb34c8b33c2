//! Rules of the source that no compiler checks: who may use whom, and what a file looks like.
//!
//! Reads `src` as text and links no library code, so it runs in milliseconds and says what is wrong
//! even when nothing compiles.

#![expect(clippy::expect_used, reason = "a test that cannot read the source should fail")]

use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// Modules from the bottom up. A module may use those in its list, and nothing else; since every
/// list names only earlier rows, the graph has no cycle.
const LAYERS: &[(&str, &str)] = &[
    ("error", ""),
    ("clock", ""),
    ("config", ""),
    ("telemetry", "config error"),
    ("tasks", "error"),
    ("event", "clock error"),
    ("geoip", "error"),
    ("wire", "error event"),
    ("flags", "clock error event"),
    ("identity", "clock error event"),
    ("storage", "clock config error"),
    ("metadata", "clock error event flags"),
    ("ingest", "clock config error event geoip identity metadata storage tasks telemetry wire"),
    ("query", "clock config error event flags identity metadata storage telemetry"),
    ("evaluation", "clock error event flags identity metadata query tasks"),
    ("insights", "clock event evaluation flags identity ingest metadata query"),
    (
        "maintenance",
        "clock config error event identity ingest insights metadata query storage tasks telemetry",
    ),
    (
        "app",
        "clock config error evaluation event geoip identity ingest maintenance metadata query storage \
         tasks telemetry",
    ),
    (
        "http",
        "app clock config error evaluation event flags geoip identity ingest insights metadata query tasks \
         telemetry wire",
    ),
    ("synth", "clock"),
    ("cli", "app clock config error event http metadata query storage synth tasks telemetry"),
];

/// Crates behind one door: (crate, where it may be named outside of tests). A place is a file without `.rs`, or a
/// directory with everything in it.
const DOORS: &[(&str, &[&str])] = &[
    ("anyhow", &["cli"]),
    ("clap", &["cli", "config", "query/rows"]),
    ("datafusion", &["insights", "query"]),
    ("datafusion_functions_json", &["insights", "query"]),
    ("fjall", &["identity"]),
    ("governor", &["http/throttle"]),
    ("hex", &["http/conditional", "metadata/secrets"]),
    ("http_body_util", &["cli", "http"]),
    ("hyper", &["cli", "http"]),
    ("hyper_util", &["cli", "http"]),
    ("ipnetwork", &["config"]),
    ("maxminddb", &["geoip"]),
    ("semver", &["event/predicate"]),
    ("sqlx", &["metadata"]),
    ("toml", &["config"]),
];

/// Where `serde_json` may read: types without a value of any kind in them, and what others wrote as
/// little as possible. Its own values give a meaning to a certain key; see `event/json`.
const READERS: &[&str] = &[
    "app/lock",
    "cli",
    "event/json",
    "identity/codec",
    "ingest/log_record",
    "ingest/salvage",
    "metadata/flag_rules",
    "query/columns/record",
    "storage/delta",
    "wire/flags/request",
    "wire/otlp/json",
];

/// Longest file; whoever exceeds it asks: what are the two things in here?
const LINES_MAX: usize = 600;

/// Longest file of tests.
const TEST_LINES_MAX: usize = 800;

/// Names that say how convenient a file is instead of what is in it.
const EMPTY_NAMES: [&str; 7] = ["common", "helper", "helpers", "misc", "mod", "util", "utils"];

/// What brings the process down. Lints forbid it too; here also in code that is not compiled.
const PANICS: [&str; 5] = [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!("];

#[test]
fn layers_have_no_cycle() {
    let mut errors = Vec::new();
    for (row, (module, uses)) in LAYERS.iter().enumerate() {
        for used in uses.split_whitespace() {
            let earlier = LAYERS.iter().take(row).any(|(name, _)| *name == used);
            if !earlier {
                errors.push(format!("LAYERS: {module} lists {used}, which is not above it"));
            }
        }
    }
    report(&errors);
}

#[test]
fn layers_name_every_module() {
    let root = fs::read_to_string(root().join("lib.rs")).expect("src/lib.rs is readable");
    let mut declared: Vec<&str> = root
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod ")))
        .map(|name| name.trim_end_matches(';'))
        .collect();
    let mut listed: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(declared, listed, "modules of src/lib.rs, and rows of LAYERS");
}

#[test]
fn modules_use_only_lower_layers() {
    check(|file, errors| {
        let Some((_, uses)) = LAYERS.iter().find(|(name, _)| *name == file.module()) else {
            return;
        };
        for (number, line) in file.code() {
            for used in words_after(line, "crate::") {
                let own = used == file.module();
                if !own && !uses.split_whitespace().any(|allowed| allowed == used) {
                    let module = file.module();
                    errors.push(file.at(number, &format!("{module} must not use {used}")));
                }
            }
        }
    });
}

#[test]
fn outside_things_have_one_door() {
    check(|file, errors| {
        for (number, line) in file.production() {
            for (name, places) in DOORS {
                let named = words_before(line, "::").any(|word| word == *name);
                if named && !places.iter().any(|place| file.is_in(place)) {
                    let places = places.join(", ");
                    errors.push(file.at(number, &format!("{name} belongs to {places}")));
                }
            }
        }
    });
}

#[test]
fn values_of_others_have_one_reader() {
    check(|file, errors| {
        for (number, line) in file.production() {
            let reads = ["from_", "Deserializer"]
                .iter()
                .any(|name| line.contains(&format!("serde_json::{name}")));
            if reads && !READERS.iter().any(|place| file.is_in(place)) {
                errors.push(file.at(number, "read and restore JSON by `event/json`"));
            }
        }
    });
}

#[test]
fn imports_show_what_is_used() {
    check(|file, errors| {
        for (number, line) in file.code() {
            let Some((_, import)) = line.split_once("use crate::") else { continue };
            if import.contains(['{', '*']) || !import.trim_end().ends_with(';') {
                errors.push(file.at(number, "one `use crate::module::Item;` a line"));
            }
        }
    });
}

#[test]
fn files_are_introduced_named_and_small() {
    check(|file, errors| {
        if !file.text.starts_with("//! ") {
            errors.push(file.at(1, "begin with `//!`: what lives here, and what may not"));
        }
        let stem = file.path.rsplit('/').next().unwrap_or(&file.path).trim_end_matches(".rs");
        if EMPTY_NAMES.contains(&stem) {
            errors.push(file.at(1, "name the file after its content, not its convenience"));
        }
        let lines = file.text.lines().count();
        let lines_max = if file.is_test() { TEST_LINES_MAX } else { LINES_MAX };
        if lines > lines_max {
            errors.push(file.at(
                lines,
                &format!("more than {lines_max} lines: what are the two things in here?"),
            ));
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            if line.ends_with([' ', '\t', '\r']) {
                errors.push(file.at(number, "white space at the end of the line"));
            }
        }
    });
}

#[test]
fn nothing_panics_outside_tests() {
    check(|file, errors| {
        for (number, line) in file.production() {
            for panic in PANICS.iter().filter(|panic| line.contains(**panic)) {
                errors.push(file.at(number, &format!("{panic} can bring the process down")));
            }
        }
    });
}

/// One file under `src`.
struct Source {
    /// From `src` on, with slashes.
    path: String,
    text: String,
}

impl Source {
    /// The module of the first level that the file belongs to.
    fn module(&self) -> &str {
        self.path.split(['/', '.']).next().unwrap_or_default()
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    fn is_in(&self, place: &str) -> bool {
        let rest = self.path.strip_prefix(place);
        rest.is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    }

    /// Lines with their numbers, comments left out.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.text.lines());
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// The same without tests; inline tests stand at the end of their file.
    fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        let code = self.code().take_while(|(_, line)| *line != "mod tests {");
        code.filter(|_| !self.is_test())
    }

    fn at(&self, line: usize, message: &str) -> String {
        format!("src/{}:{line}: {message}", self.path)
    }
}

/// The identifiers that follow `marker` in `line`, where the marker is a word of its own.
fn words_after<'l>(line: &'l str, marker: &'l str) -> impl Iterator<Item = &'l str> {
    line.match_indices(marker).filter_map(move |(at, _)| {
        let (before, after) = (line.get(..at)?, line.get(at + marker.len()..)?);
        let end = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
        (!before.ends_with(is_word)).then(|| after.get(..end)).flatten()
    })
}

/// The identifiers right before `marker` in `line` that begin a path.
fn words_before<'l>(line: &'l str, marker: &'l str) -> impl Iterator<Item = &'l str> {
    line.match_indices(marker).filter_map(move |(at, _)| {
        let before = line.get(..at)?;
        let path = before.trim_end_matches(is_word);
        (!path.ends_with("::")).then(|| before.get(path.len()..)).flatten()
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Asks `rule` about every file and fails with all it found.
fn check(rule: impl Fn(&Source, &mut Vec<String>)) {
    let mut paths = Vec::new();
    collect(&root(), &mut paths);
    paths.sort();
    assert!(paths.len() > 100, "the source is not where this test looks");
    let mut errors = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("source files are readable");
        let inner = path.strip_prefix(root()).expect("the file is under src");
        let path = inner.to_string_lossy().replace('\\', "/");
        rule(&Source { path, text }, &mut errors);
    }
    report(&errors);
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("directories are readable") {
        let path = entry.expect("entries are readable").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn report(errors: &[String]) {
    assert!(errors.is_empty(), "\n{}\n", errors.join("\n"));
}
