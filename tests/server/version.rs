//! The version that the program tells: that of the package, and the commit that it is built from.

#[path = "../../src/build.rs"]
#[expect(dead_code, reason = "the build script's own start")]
mod build_script;

use std::fs;
use std::path::Path;
use std::process::Command;

use build_script::Source;

use crate::harness::binary;

#[test]
fn the_version_is_told_with_the_commit() {
    for argument in ["version", "--version"] {
        let output = Command::new(binary()).arg(argument).output().expect("weir");
        assert!(output.status.success(), "{argument}");
        let told = String::from_utf8(output.stdout).expect("UTF-8");
        let version = told.strip_prefix(concat!("weir ", env!("CARGO_PKG_VERSION")));
        let rest = version.and_then(|rest| rest.strip_suffix('\n'));
        let rest = rest.unwrap_or_else(|| panic!("{argument}: {told}"));
        let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
        let is_commit =
            |text: &str| text.len() == 12 && text.bytes().all(|c| c.is_ascii_hexdigit());
        // None if it was built without a repository.
        assert!(rest.is_empty() || commit.is_some_and(is_commit), "{argument}: {told}");
        if std::env::var_os("WEIR_TEST_BINARY").is_none() {
            assert_eq!(told, concat!("weir ", env!("WEIR_VERSION"), "\n"));
        }
    }
}

/// What git prints, without the end of the line.
fn git(repository: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args([
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.com",
        "-c",
        "commit.gpgsign=false",
    ]);
    command.arg("-C").arg(repository).args(arguments);
    // Whoever runs the tests from a hook has these set.
    command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env_remove("GIT_WORK_TREE");
    let output = command.output().expect("git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned()
}

/// What is found is what git says, and something that cargo looks at is younger after the next commit.
fn is_found(root: &Path, state: &str) {
    let found = Source::find(root);
    let head = git(root, &["rev-parse", "HEAD"]);
    assert_eq!(found.short(), head.get(..12), "{state}");
    assert!(found.files.iter().all(|file| file.exists()), "{state}: {found:?}");
    let times = || -> Vec<_> {
        let files = found.files.iter();
        files.map(|file| fs::metadata(file).and_then(|data| data.modified()).ok()).collect()
    };
    let before = times();
    // Times of files are those of the kernel's last tick.
    std::thread::sleep(std::time::Duration::from_millis(20));
    git(root, &["status"]);
    assert_eq!(times(), before, "{state}: a look changes nothing");
    git(root, &["commit", "--quiet", "--allow-empty", "--message", "next"]);
    assert_ne!(times(), before, "{state}: {found:?}");
    assert_eq!(Source::find(root).short(), git(root, &["rev-parse", "HEAD"]).get(..12), "{state}");
}

#[test]
fn the_commit_is_found_however_git_keeps_it() {
    let own = tempfile::tempdir().expect("a directory");
    let root = own.path().join("repository");
    fs::create_dir(&root).expect("a directory");
    git(&root, &["init", "--quiet", "--initial-branch", "feature/one"]);
    assert_eq!(Source::find(&root).short(), None, "no commit yet");
    git(&root, &["commit", "--quiet", "--allow-empty", "--message", "first"]);
    is_found(&root, "a branch");
    git(&root, &["pack-refs", "--all"]);
    assert!(!root.join(".git/refs/heads/feature/one").exists());
    is_found(&root, "a packed branch");
    git(&root, &["checkout", "--quiet", "--detach"]);
    is_found(&root, "no branch");
    let worktree = own.path().join("worktree");
    let path = worktree.to_str().expect("UTF-8");
    git(&root, &["worktree", "add", "--quiet", "-b", "two", path]);
    is_found(&worktree, "a worktree");
    git(&root, &["pack-refs", "--all"]);
    is_found(&worktree, "a packed branch of a worktree");

    // A directory of a repository is none; a package of cargo names its commit.
    let inner = root.join("inner");
    fs::create_dir(&inner).expect("a directory");
    assert_eq!(Source::find(&inner).short(), None);
    let packaged = r#"{
  "git": {
    "sha1": "0123456789abcdef0123456789abcdef01234567"
  },
  "path_in_vcs": ""
}"#;
    fs::write(inner.join(".cargo_vcs_info.json"), packaged).expect("writes");
    assert_eq!(Source::find(&inner).short(), Some("0123456789ab"));
    assert_eq!(Source::find(&inner).files, [inner.join(".cargo_vcs_info.json")]);
}
