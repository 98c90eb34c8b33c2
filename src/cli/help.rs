//! `weir help TOPIC`: prints a page of the guide. Commands have the help of clap.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{ErrorKind, Write};

use anyhow::bail;
use strsim::osa_distance;

use crate::guide::{PAGES, Page};

/// The list of topics below the help of the program.
pub(super) fn topics() -> String {
    let width = PAGES.iter().map(|page| page.topic.len()).max().unwrap_or_default();
    let mut list = String::from("Topics of the guide, for `weir help TOPIC`:");
    for Page { topic, summary, .. } in PAGES {
        list.push_str(&format!("\n  {topic:width$}  {summary}"));
    }
    list
}

/// The topic NAME of `weir help NAME` in `arguments`; `None` if it is a command of `program`, which clap explains.
pub(super) fn topic<'a>(arguments: &'a [OsString], program: &clap::Command) -> Option<&'a str> {
    if arguments.get(1)? != "help" {
        return None;
    }
    let name = arguments.get(2)?.to_str()?;
    let is_command = name == "help" || program.find_subcommand(name).is_some();
    (!is_command && !name.starts_with('-')).then_some(name)
}

/// Prints the page about `topic`.
///
/// # Errors
///
/// There is no such page: the nearest name and all topics. Or standard output fails.
pub(super) fn print(topic: &str, program: &clap::Command) -> anyhow::Result<()> {
    let Some(page) = PAGES.iter().find(|page| page.topic == topic) else {
        let hint = nearest(topic, program).map(|name| format!(" Did you mean {name}?"));
        bail!(
            "there is no command and no topic {topic}.{}\n\n{}",
            hint.unwrap_or_default(),
            topics()
        );
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(plain(page.text).as_bytes()).and_then(|()| out.flush()) {
        // A pager that was closed before the end.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The page without the definitions of its links, which only a browser follows.
fn plain(text: &str) -> String {
    let is_definition = |line: &&str| line.starts_with('[') && line.ends_with(".md");
    let lines: Vec<&str> = text.lines().filter(|line| !is_definition(line)).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

/// The topic or command that is nearest to `name`, if at most a third of its letters differs.
fn nearest<'p>(name: &str, program: &'p clap::Command) -> Option<&'p str> {
    let name = name.to_lowercase();
    let commands = program.get_subcommands().map(clap::Command::get_name);
    let names = PAGES.iter().map(|page| page.topic).chain(commands);
    let best =
        names.map(|known| (osa_distance(&name, known), known)).min_by_key(|(edits, _)| *edits);
    best.filter(|(edits, _)| *edits <= name.chars().count().div_ceil(3)).map(|(_, known)| known)
}
