//! Rules of the source that no compiler checks: what a file looks like, and which files may use what.
//!
//! Reads `src` as text and links no library code, so it runs in milliseconds and says what is wrong
//! even when nothing compiles.

#![expect(clippy::expect_used, reason = "a test that cannot read the source should fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Dependencies behind one door: (crate, where it may be named outside of tests). A place is a file without `.rs`, or a
/// directory with everything in it. Doors as wide as a member are its `Cargo.toml`.
const DOORS: &[(&str, &[&str])] = &[
    ("anyhow", &["cli"]),
    ("clap", &["base/config", "cli", "query/output/format"]),
    ("governor", &["app/throttle"]),
    (
        "hex",
        &[
            "http/conditional",
            "http/routes/mcp/token",
            "metadata/secrets",
            "query/functions/codes",
            "web/assets",
            "wire/repair",
        ],
    ),
    ("hyper_rustls", &["cli/client"]),
    ("ipnetwork", &["base/config"]),
    ("maud", &["http/routes/pages", "web"]),
    ("maxminddb", &["event/geoip"]),
    ("ring", &["http/routes/mcp/token", "metadata/passwords"]),
    ("semver", &["event/predicate"]),
    ("tokio_rustls", &["pg/tls", "pg/lib"]),
    ("toml", &["base/config"]),
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
    "storage/delta",
    "storage/images/manifest",
    "wire/flags/request",
    "wire/otlp/json",
];

/// The largest circle of files of one member that use each other, directly or over others; in members
/// that are not listed there is none. Files of a circle can only be read, moved and tested together.
/// What all of them use belongs in a file of its own, which uses none of them: errors, and the types
/// that they pass to each other.
const CIRCLES: &[(&str, usize)] = &[
    ("app", 3),
    ("cli", 2),
    ("event", 2),
    ("http", 4),
    ("metadata", 2),
    ("pg", 5),
    ("query", 4),
    ("storage", 4),
    ("synth", 2),
    ("wire", 2),
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
fn files_form_no_large_circles() {
    let sources = sources();
    let mut errors = Vec::new();
    let members: BTreeSet<&str> = sources.iter().map(Source::member).collect();
    for member in members {
        let files: Vec<&Source> =
            sources.iter().filter(|file| file.member() == member && !file.is_test()).collect();
        let circle = largest_circle(&files);
        let allowed = CIRCLES.iter().find(|(name, _)| *name == member).map_or(1, |(_, size)| *size);
        if circle.len() > allowed {
            let (size, files) = (circle.len(), circle.join(", "));
            errors.push(format!("{member}: {size} files use each other, not {allowed}: {files}"));
        }
    }
    report(&errors);
}

#[test]
fn circles_are_found() {
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("a/lib.rs", "use crate::b::B;\nuse weir_z::Z;\nfn f() {\n    c::g();\n}\n"),
        file("a/b.rs", "// crate::c is not used\nuse crate::leaf::Leaf;\n"),
        file("a/c.rs", "impl crate::d::D {}\n"),
        file("a/d.rs", "pub(in crate::b) struct D;\nuse crate::A;\n"),
        file("a/leaf.rs", "pub struct Leaf;\nmod tests {\nuse crate::A;\n}\n"),
    ];
    let files: Vec<&Source> = files.iter().collect();
    assert_eq!(largest_circle(&files), ["a/lib", "a/c", "a/d"]);
    assert_eq!(largest_circle(&files[1..]).len(), 1);
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
        for (number, line) in file.with_single_imports() {
            let reads = ["from_", "Deserializer"]
                .iter()
                .any(|name| line.contains(&format!("serde_json::{name}")));
            if reads && !READERS.iter().any(|place| file.is_in(place)) {
                errors.push(file.at(number, "read and restore JSON by `event/json`"));
            }
        }
    });
}

/// Members of the JSON that users stored are read by the codecs of the page's state, and of exported dashboards.
#[test]
fn pages_draw_types() {
    const CODECS: [&str; 2] = ["web/state", "http/routes/pages/insights/transfer"];
    check(|file, errors| {
        let is_of_page = ["web", "http/routes/pages"].iter().any(|place| file.is_in(place));
        if !is_of_page || CODECS.iter().any(|place| file.is_in(place)) {
            return;
        }
        for (number, line) in file.production() {
            let is_member = line.contains(".get(\"") && line.contains("Value::as_");
            if is_member || line.contains(".pointer(\"") {
                errors.push(file.at(number, "read stored JSON by a codec in `web/state`"));
            }
        }
    });
}

#[test]
fn imports_show_what_is_used() {
    check(|file, errors| {
        let (mut block, mut end) = (BTreeSet::new(), 0);
        for import in file.imports() {
            if import.line > end + 1 {
                block.clear();
            }
            end = import.end;
            let is_own = import.parent.starts_with("crate") || import.parent.starts_with("weir_");
            if is_own && import.items.iter().any(|item| item.contains(['{', '*'])) {
                errors
                    .push(file.at(import.line, "name the items, without globs and nested braces"));
            }
            if !block.insert((import.visibility, import.parent)) {
                errors.push(file.at(import.line, "one `use` for the items of a module"));
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

/// The map, `src/lib.rs`, names files and directories from `src` or from the root of the workspace on.
#[test]
fn paths_of_the_map_exist() {
    let map = fs::read_to_string(root().join("lib.rs")).expect("the map is readable");
    let is_path =
        |text: &&str| (text.contains('/') || text.ends_with(".rs")) && !text.contains(' ');
    let (mut count, mut errors) = (0, Vec::new());
    for (number, line) in (1..).zip(map.lines()) {
        for path in line.split('`').skip(1).step_by(2).filter(is_path) {
            count += 1;
            if !root().join(path).exists() && !root().join("..").join(path).exists() {
                errors.push(format!("src/lib.rs:{number}: there is no {path}"));
            }
        }
    }
    assert!(count > 100, "the map is not what this test reads");
    report(&errors);
}

/// One file under `src`.
struct Source {
    /// From `src` on, with slashes.
    path: String,
    text: String,
}

impl Source {
    /// The member that the file belongs to; the file or directory of the first level, where it is none.
    fn member(&self) -> &str {
        self.path.split(['/', '.']).next().unwrap_or_default()
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/") || self.member() == "sim"
    }

    fn is_in(&self, place: &str) -> bool {
        let rest = self.path.strip_prefix(place);
        rest.is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    }

    /// Where `crate::` leads: the directory of the member, with a slash, or nothing for the root package.
    fn root(&self) -> &str {
        match self.member() {
            "build" | "cli" | "guide" | "lib" | "main" | "synth" => "",
            member => self.path.get(..=member.len()).unwrap_or_default(),
        }
    }

    /// The path without `.rs`.
    fn name(&self) -> &str {
        self.path.trim_end_matches(".rs")
    }

    /// Which of `files` are named by a path in the code, tests left out.
    fn used<'f>(&self, files: &[&'f Source]) -> Vec<&'f str> {
        let root = self.root();
        let file = |path: &str| {
            let path = format!("{root}{}", path.replace("::", "/"));
            let parents = std::iter::successors(Some(path.as_str()), |path| {
                path.rsplit_once('/').map(|(parent, _)| parent)
            });
            let mut found =
                parents.filter_map(|path| files.iter().find(|file| file.name() == path));
            let lib = || files.iter().find(|file| file.name() == format!("{root}lib"));
            found.next().or_else(lib).map(|file| file.name())
        };
        let child = |name: &str| {
            let own = self.name().strip_suffix("/lib").unwrap_or(self.name());
            let path = format!("{own}/{name}");
            files.iter().find(|file| file.name() == path).map(|file| file.name())
        };
        let used = self.with_single_imports().into_iter().flat_map(|(_, line)| {
            let line = line.replace("(in crate::", "(");
            let paths: Vec<_> = line
                .split("crate::")
                .skip(1)
                .filter_map(|rest| {
                    let end = rest.find(|c: char| !is_word(c) && c != ':').unwrap_or(rest.len());
                    file(rest.get(..end)?)
                })
                .collect();
            let children: Vec<_> = words_before(&line, "::").filter_map(child).collect();
            [paths, children].concat()
        });
        used.filter(|name| *name != self.name()).collect()
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

    /// Statements that import, tests included.
    fn imports(&self) -> Vec<Import> {
        let mut found = Vec::new();
        let mut lines = self.code();
        while let Some((number, line)) = lines.next() {
            let (visibility, rest) = match line.trim_start().split_once("use ") {
                Some((visibility, rest))
                    if visibility.is_empty() || visibility.starts_with("pub") =>
                {
                    (visibility.trim_end().to_owned(), rest)
                }
                _ => continue,
            };
            let (mut text, mut end) = (rest.trim().to_owned(), number);
            while !text.ends_with(';') {
                let Some((number, line)) = lines.next() else { break };
                text.push_str(line.trim());
                end = number;
            }
            let text = text.trim_end_matches(';');
            let (parent, items) = match text.split_once("::{") {
                Some((parent, items)) => {
                    (parent, items.strip_suffix('}').unwrap_or(items).split(',').collect())
                }
                None => text
                    .rsplit_once("::")
                    .map_or((text, Vec::new()), |(parent, item)| (parent, vec![item])),
            };
            let items = items.into_iter().map(|item| item.trim().to_owned());
            let items = items.filter(|item| !item.is_empty()).collect();
            found.push(Import { line: number, end, visibility, parent: parent.to_owned(), items });
        }
        found
    }

    /// The lines of production with their numbers, with one line for each item of an import.
    fn with_single_imports(&self) -> Vec<(usize, String)> {
        let imports = self.imports();
        let is_import =
            |number: usize| imports.iter().any(|own| (own.line..=own.end).contains(&number));
        let end = self.production().last().map_or(0, |(number, _)| number);
        let single = imports.iter().filter(|own| own.line <= end).flat_map(|own| {
            own.items.iter().map(|item| (own.line, format!("use {}::{item};", own.parent)))
        });
        let others = self.production().filter(|(number, _)| !is_import(*number));
        single.chain(others.map(|(number, line)| (number, line.to_owned()))).collect()
    }

    fn at(&self, line: usize, message: &str) -> String {
        format!("src/{}:{line}: {message}", self.path)
    }
}

/// `use parent::{items};`
struct Import {
    line: usize,
    /// Its last line.
    end: usize,
    visibility: String,
    parent: String,
    items: Vec<String>,
}

/// The names of the most files of which each uses every other, directly or over others.
fn largest_circle<'f>(files: &[&'f Source]) -> Vec<&'f str> {
    let uses: BTreeMap<&str, Vec<&str>> =
        files.iter().map(|file| (file.name(), file.used(files))).collect();
    let reached = |from: &'f str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(name) = next.pop() {
            let new = uses.get(name).into_iter().flatten().filter(|used| seen.insert(**used));
            next.extend(new);
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        files.iter().map(|file| (file.name(), reached(file.name()))).collect();
    let uses_too = |from: &str, to: &str| reached.get(from).is_some_and(|seen| seen.contains(to));
    let circle = |name: &str| -> Vec<&'f str> {
        let others = files.iter().map(|file| file.name());
        let is_in = |other: &str| other == name || (uses_too(name, other) && uses_too(other, name));
        others.filter(|other| is_in(other)).collect()
    };
    let circles = files.iter().map(|file| circle(file.name()));
    circles.max_by_key(Vec::len).unwrap_or_default()
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
    let mut errors = Vec::new();
    for source in sources() {
        rule(&source, &mut errors);
    }
    report(&errors);
}

/// All files under `src`, by path.
fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    collect(&root(), &mut paths);
    paths.sort();
    assert!(paths.len() > 100, "the source is not where this test looks");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("source files are readable");
        let inner = path.strip_prefix(root()).expect("the file is under src");
        Source { path: inner.to_string_lossy().replace('\\', "/"), text }
    };
    paths.into_iter().map(read).collect()
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
