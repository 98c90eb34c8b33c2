//! Build script: the version of the program with the commit that it is built from, as `WEIR_VERSION`.
//!
//! The commit is read from the files of the repository, so that no `git` is needed, and cargo is told which of them a
//! new commit changes: nothing else makes this script run, and what depends on it compile, again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Letters of a commit in the version.
const SHORT: usize = 12;

/// Names the commit where there is no repository, such as in the build of an image; empty for none.
const SETTING: &str = "WEIR_COMMIT";

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its settings there")]
fn main() -> io::Result<()> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let source = match std::env::var(SETTING) {
        Ok(commit) => Source { commit: Some(commit), files: Vec::new() },
        Err(_) => Source::find(&root),
    };
    let mut out = io::stdout();
    writeln!(out, "cargo::rerun-if-env-changed={SETTING}")?;
    for file in &source.files {
        writeln!(out, "cargo::rerun-if-changed={}", file.display())?;
    }
    match source.short() {
        Some(commit) => writeln!(out, "cargo::rustc-env=WEIR_VERSION={version} ({commit})"),
        None => writeln!(out, "cargo::rustc-env=WEIR_VERSION={version}"),
    }
}

/// What the source is a state of.
#[derive(Debug, Default)]
pub(crate) struct Source {
    commit: Option<String>,
    /// Files and directories that change with the commit. All exist: cargo takes one that does not for a changed one.
    pub(crate) files: Vec<PathBuf>,
}

impl Source {
    /// Of the repository whose root this is, or of the package that cargo has made of one. A directory above may be the
    /// repository of somebody else.
    pub(crate) fn find(root: &Path) -> Self {
        let own = root.join(".git");
        let packaged = root.join(".cargo_vcs_info.json");
        if let Some(directory) = git_directory(&own) {
            let mut found = Self::of_repository(&directory);
            found.files.extend(own.is_file().then_some(own));
            found
        } else if let Ok(text) = fs::read_to_string(&packaged) {
            // {"git": {"sha1": "..."}, ...}
            let commit = text.split_once("\"sha1\"").and_then(|(_, rest)| rest.split('"').nth(1));
            Self { commit: commit.map(str::to_owned), files: vec![packaged] }
        } else {
            Self::default()
        }
    }

    fn of_repository(directory: &Path) -> Self {
        let head = directory.join("HEAD");
        let Some(target) = line_of(&head) else { return Self::default() };
        let Some(name) = target.strip_prefix("ref: ") else {
            return Self { commit: Some(target), files: vec![head] };
        };
        // Branches are in the main repository, which a worktree names.
        let common = line_of(&directory.join("commondir"));
        let common = common.map_or_else(|| directory.to_owned(), |path| directory.join(path));
        let branch = common.join(name);
        if let Some(commit) = line_of(&branch) {
            return Self { commit: Some(commit), files: vec![head, branch] };
        }
        // The next commit creates the file of the branch.
        let packed = common.join("packed-refs");
        let commit = fs::read_to_string(&packed).ok().and_then(|refs| {
            let mut lines = refs.lines().filter_map(|line| line.split_once(' '));
            lines.find_map(|(commit, branch)| (branch == name).then(|| commit.to_owned()))
        });
        let place = branch.ancestors().skip(1).find(|place| place.is_dir()).map(Path::to_owned);
        let files = [Some(head), Some(packed).filter(|file| file.exists()), place];
        Self { commit, files: files.into_iter().flatten().collect() }
    }

    /// The commit as the version has it.
    pub(crate) fn short(&self) -> Option<&str> {
        let short = self.commit.as_deref()?.get(..SHORT)?;
        short.bytes().all(|letter| letter.is_ascii_hexdigit()).then_some(short)
    }
}

/// Follows `.git` of a worktree or a submodule, which is a file with the path.
fn git_directory(own: &Path) -> Option<PathBuf> {
    if own.is_dir() {
        return Some(own.to_owned());
    }
    let line = line_of(own)?;
    Some(own.parent()?.join(line.strip_prefix("gitdir: ")?))
}

fn line_of(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()?.lines().next().map(str::to_owned)
}
