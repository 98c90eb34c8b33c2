//! Tests of the topics and their texts; and of the page of settings, which is generated from their definitions.

use std::ffi::OsString;

use clap::{Arg, Args, CommandFactory};

use super::{nearest, plain, topic, topics};
use crate::cli::Cli;
use crate::cli::serve::ServeArgs;
use crate::guide::PAGES;

/// Longest line of the page.
const WIDTH: usize = 120;

/// Rules that apply to all settings.
const HEAD: &str = "# Settings

Every setting is a flag (`--wal-max-bytes 8GiB`), an environment variable (`WEIR_WAL_MAX_BYTES=8GiB`) and a key of the TOML
file named by `--config` or `WEIR_CONFIG` (`wal-max-bytes = \"8GiB\"`). The flag overrides the variable, and the variable
overrides the file. Sizes are bytes or carry a unit (`64MiB`); times carry a unit (`500ms`, `10s`, `5m`). The server does not
start with a value out of its range, an unknown key in the file, or a missing directory; the error names the setting and where
its value comes from.

[limits] lists the limits that are not settings.
";

/// Where links lead.
const FOOT: &str = "\n[limits]: limits.md\n";

fn arguments(words: &[&str]) -> Vec<OsString> {
    std::iter::once("weir").chain(words.iter().copied()).map(OsString::from).collect()
}

/// Goal: topics are printed, commands are left to clap, and no name is both.
#[test]
fn topics_and_commands_are_told_apart() {
    let program = Cli::command();
    for page in PAGES {
        assert_eq!(topic(&arguments(&["help", page.topic]), &program), Some(page.topic));
        assert!(topics().contains(&format!("\n  {}", page.topic)), "{}", page.topic);
    }
    for words in [
        &["help"][..],
        &["help", "serve"],
        &["help", "keys", "create"],
        &["help", "help"],
        &["help", "--help"],
        &["serve", "settings"],
        &[],
    ] {
        assert_eq!(topic(&arguments(words), &program), None, "{words:?}");
    }
    assert_eq!(topic(&arguments(&["help", "setings"]), &program), Some("setings"));
}

#[test]
fn the_nearest_topic_or_command_is_found() {
    let program = Cli::command();
    for (name, expected) in [
        ("setings", Some("settings")),
        ("Settings", Some("settings")),
        ("postgresql", Some("postgres")),
        ("mgirate", Some("migrate")),
        ("bakcup", Some("backup")),
        ("kubernetes", None),
        ("", None),
    ] {
        assert_eq!(nearest(name, &program), expected, "{name}");
    }
}

#[test]
fn pages_are_printed_without_definitions_of_links() {
    let text = "# A\n\nSee [b].\n\n```text\n[x]\n```\n\n[b]: b.md\n[c]: c.md\n";
    assert_eq!(plain(text), "# A\n\nSee [b].\n\n```text\n[x]\n```\n");
}

/// Cuts `[name: ...]` off the end of a help text.
fn cut(help: &str, name: &str) -> (String, Option<String>) {
    match help.split_once(&format!(" [{name}: ")) {
        Some((help, rest)) => (help.to_owned(), Some(rest.trim_end_matches(']').to_owned())),
        None => (help.to_owned(), None),
    }
}

/// An entry of the page: name, default, range or values, meaning.
fn entry(setting: &Arg) -> String {
    let name = setting.get_long().expect("every setting is a flag");
    let help = setting.get_help().expect("every setting is explained").to_string();
    let (help, stated) = cut(&help, "default");
    let (help, range) = cut(&help, "range");
    let is_switch = !setting.get_action().takes_values();
    let default =
        setting.get_default_values().first().map(|value| format!("`{}`", value.display()));
    let default = default.filter(|_| !is_switch).or(stated);
    let values = setting.get_possible_values();
    let values: Vec<String> =
        values.iter().map(|value| format!("`{}`", value.get_name())).collect();
    let mut facts = Vec::new();
    match (default, is_switch) {
        (Some(default), _) => facts.push(format!("default: {default}")),
        (None, true) => facts.push("a flag only".to_owned()),
        (None, false) => assert_eq!(name, "config", "every other setting has a default"),
    }
    facts.extend(range.map(|range| format!("range: {range}")));
    if !values.is_empty() && !is_switch {
        facts.push(format!("one of {}", values.join(", ")));
    }
    let facts = match facts.is_empty() {
        true => String::new(),
        false => format!(" ({})", facts.join("; ")),
    };
    wrapped(&format!("- **`{name}`**{facts}: {help}."))
}

/// The words of an item of a list in lines, the further ones indented.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        let last = lines.last_mut().expect("one line");
        if last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("  {word}"));
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    format!("{}\n", lines.join("\n"))
}

/// Goal: the page of settings equals their definitions. `WEIR_WRITE_GUIDE=1` writes it.
#[test]
fn the_page_of_settings_is_that_of_the_definitions() {
    let mut page = HEAD.to_owned();
    let mut heading = None;
    for setting in ServeArgs::augment_args(clap::Command::new("serve")).get_arguments() {
        let own = setting.get_help_heading().unwrap_or("Start").to_owned();
        if heading.as_ref() != Some(&own) {
            page.push_str(&format!("\n## {own}\n\n"));
            heading = Some(own);
        }
        page.push_str(&entry(setting));
    }
    page.push_str(FOOT);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/settings.md");
    if std::env::var_os("WEIR_WRITE_GUIDE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    let differs = kept.lines().zip(page.lines()).find(|(kept, made)| kept != made);
    let hint = "WEIR_WRITE_GUIDE=1 scripts/dev.sh unit weir guide";
    assert!(kept == page, "src/guide/settings.md is old: {differs:#?}\n{hint} writes it anew");
}
