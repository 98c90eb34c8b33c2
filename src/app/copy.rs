//! A working copy of a data directory, for commands that read it while no server runs: [`WorkingCopy`].
//!
//! Engines cannot open a directory without changing it: the identity store and SQLite recover what a crash
//! left, and the log ends a torn write. So they open a copy in a temporary directory, and the data directory
//! stays as it is, byte for byte.
//!
//! | part | in the copy |
//! |---|---|
//! | `tables/events/`, `tables/persons/` | links: their files never change |
//! | `identity/` | the files of `tables/` as links, since they never change; journals and manifests as copies |
//! | `wal/` | the newest segments as copies, since recovery writes to them; older ones as links |
//! | `metadata.db`, its write-ahead log and what tells whether that was lost, `node-id` | copies |
//!
//! Links are symbolic, so the copy may be on another file system, and [`crate::storage::disk::OsDisk`] opens
//! them for reading only. The copy holds a shared lock of the data directory: no server starts on it meanwhile,
//! and several readers do not keep each other out.
//!
//! A process that is killed leaves its copy behind. The next one that makes a copy removes it: a copy in use has
//! a lock, which ends with the process.

use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::FlockOperation;
use tempfile::TempDir;

use crate::app::lock::DirectoryLock;
use crate::app::lock::Holder;
use crate::app::lock::ServerAddress;

/// Where projects and keys are.
const METADATA: &str = "metadata.db";

/// What a data directory has. One without any of it is something else.
const PARTS: [&str; 4] = [METADATA, "tables", "wal", "identity"];

/// Start of the names of copies in the directory for temporary files.
const PREFIX: &str = "weir-copy-";

/// Age from which a copy that nobody has locked was left behind: not one that is just being made.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// Segments of the log that recovery may write to: the newest, and the one before it if the newest has no
/// record yet. One more as a reserve.
const SEGMENTS_COPIED: usize = 3;

/// Why there is no working copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Nothing has that path.
    #[error("there is no directory {}", .0.display())]
    Absent(PathBuf),
    /// The directory holds something else.
    #[error("{} is not a Weir data directory: it has none of {}", .0.display(), PARTS.join(", "))]
    Foreign(PathBuf),
    /// The lock cannot be looked at.
    #[error("cannot lock {}", path.display())]
    Lock {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A process holds the lock and has not announced an address.
    #[error("{} is in use by another process, which may be a server that starts", .0.display())]
    Busy(PathBuf),
    /// A file or directory.
    #[error(
        "cannot make a working copy of {} in {}; TMPDIR names another place",
        path.display(), std::env::temp_dir().display()
    )]
    Io {
        /// What was to be copied.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl CopyError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }
}

/// What a command reads.
#[derive(Debug)]
pub enum Source {
    /// The server that runs on the directory answers.
    Server(ServerAddress),
    /// No server runs.
    Copy(WorkingCopy),
}

/// A temporary directory that engines may open; it is removed with the value.
#[derive(Debug)]
pub struct WorkingCopy {
    copy: TempDir,
    /// Of what it is a copy.
    data_dir: PathBuf,
    /// Tells that the copy is in use.
    _in_use: File,
    _lock: DirectoryLock,
}

/// How a file gets into the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Link,
    Copy,
    Leave,
}

impl Source {
    /// Finds out who can answer for `data_dir`, without writing to it.
    ///
    /// # Errors
    ///
    /// There is no such directory, it is no data directory, it is in use by something else than a server that
    /// answers, or there is no room for the copy.
    pub fn find(data_dir: &Path) -> Result<Self, CopyError> {
        if !data_dir.is_dir() {
            return Err(CopyError::Absent(data_dir.to_path_buf()));
        }
        let locked = DirectoryLock::share(data_dir);
        let locked =
            locked.map_err(|source| CopyError::Lock { path: data_dir.to_path_buf(), source });
        match locked? {
            Holder::Server(address) => Ok(Self::Server(address)),
            Holder::Unknown => Err(CopyError::Busy(data_dir.to_path_buf())),
            Holder::Nobody(lock) => WorkingCopy::make(data_dir, lock).map(Self::Copy),
        }
    }
}

impl WorkingCopy {
    /// The directory to open.
    pub fn path(&self) -> &Path {
        self.copy.path()
    }

    /// A message with the names of the copy's files as those of what they are copies of: the copy is gone when
    /// the message is read.
    pub fn named(&self, text: &str) -> String {
        text.replace(&*self.path().to_string_lossy(), &self.data_dir.to_string_lossy())
    }

    fn make(given: &Path, lock: DirectoryLock) -> Result<Self, CopyError> {
        if !PARTS.iter().any(|part| given.join(part).exists()) {
            return Err(CopyError::Foreign(given.to_path_buf()));
        }
        // Links need the whole path.
        let data_dir = std::path::absolute(given).map_err(CopyError::io(given))?;
        sweep(&std::env::temp_dir());
        let copy = tempfile::Builder::new().prefix(PREFIX).tempdir();
        let copy = copy.map_err(CopyError::io(&data_dir))?;
        let in_use = in_use(copy.path()).map_err(CopyError::io(&data_dir))?;
        let fill = |name: &str, way: &dyn Fn(&Path) -> Way| {
            let from = data_dir.join(name);
            place(&from, &copy.path().join(name), way).map_err(CopyError::io(&from))
        };
        fill("metadata.db-wal", &|_| Way::Copy)?;
        fill(METADATA, &|_| Way::Copy)?;
        // SQLite makes it anew; where it is without the one above, that one was lost.
        fill("metadata.db-shm", &|_| Way::Copy)?;
        fill("node-id", &|_| Way::Copy)?;
        fs::create_dir(copy.path().join("tables")).map_err(CopyError::io(copy.path()))?;
        fill("tables/events", &|_| Way::Link)?;
        fill("tables/persons", &|_| Way::Link)?;
        fill("identity", &|file| if is_in(file, "tables") { Way::Link } else { Way::Copy })?;
        let newest = newest_segments(&data_dir.join("wal"));
        let newest = newest.map_err(CopyError::io(&data_dir.join("wal")))?;
        fill("wal", &|file| match () {
            () if !is_segment(file) || is_in(file, "quarantine") => Way::Leave,
            () if newest.iter().any(|segment| segment == file) => Way::Copy,
            () => Way::Link,
        })?;
        Ok(Self { copy, data_dir: given.to_path_buf(), _in_use: in_use, _lock: lock })
    }
}

/// The lock of a copy, held as long as it is in use.
fn in_use(copy: &Path) -> io::Result<File> {
    let directory = File::open(copy)?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

/// Removes the copies in `temporary` that killed processes of this user have left. What fails is left to the next
/// one: it costs room.
fn sweep(temporary: &Path) {
    let Ok(entries) = fs::read_dir(temporary) else { return };
    for entry in entries.flatten() {
        let is_named = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        // Not that of a link.
        let Some(metadata) = entry.metadata().ok().filter(|_| is_named) else { continue };
        let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok());
        let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
        if metadata.is_dir()
            && is_own
            && age.is_some_and(|age| age > LEFT_AFTER)
            && let Ok(_locked) = in_use(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Brings the file or directory `from`, if there is one, to `to`.
fn place(from: &Path, to: &Path, way: &dyn Fn(&Path) -> Way) -> io::Result<()> {
    let metadata = match fs::metadata(from) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if metadata.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            place(&entry.path(), &to.join(entry.file_name()), way)?;
        }
        return Ok(());
    }
    match way(from) {
        Way::Link => symlink(from, to),
        Way::Copy => {
            fs::copy(from, to)?;
            // The file may be one that its owner keeps from being written.
            fs::set_permissions(to, fs::Permissions::from_mode(0o600))
        }
        Way::Leave => Ok(()),
    }
}

/// The segments of the log that are copied. Their names sort as their sequences do.
fn newest_segments(wal: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(wal) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut segments = Vec::new();
    for entry in entries {
        segments.push(entry?.path());
    }
    segments.retain(|path| is_segment(path));
    segments.sort_unstable();
    Ok(segments.split_off(segments.len().saturating_sub(SEGMENTS_COPIED)))
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "wal")
}

/// Whether the directory that holds `file` has this name.
fn is_in(file: &Path, directory: &str) -> bool {
    file.parent().and_then(Path::file_name).is_some_and(|name| name == directory)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::CopyError;
    use super::Source;
    use super::in_use;
    use super::sweep;
    use crate::app::lock::DirectoryLock;
    use crate::app::lock::Holder;

    #[test]
    fn what_may_be_written_is_copied_and_the_rest_linked() {
        let directory = tempfile::tempdir().unwrap();
        let segment = |number: u32| format!("wal/{number:020}.wal");
        let files = [
            ("metadata.db", false),
            ("metadata.db-wal", false),
            ("metadata.db-shm", false),
            ("node-id", false),
            ("tables/events/month=2026-11/a.parquet", true),
            ("tables/persons/b.parquet", true),
            ("identity/0.jnl", false),
            ("identity/keyspaces/1/manifest", false),
            ("identity/keyspaces/1/tables/7", true),
            (&segment(1), true),
            (&segment(2), false),
            (&segment(3), false),
            (&segment(4), false),
        ];
        let left = ["lock", "wal/spare", "wal/quarantine/1.wal", "person-columns/1"];
        for name in files.iter().map(|(name, _)| *name).chain(left) {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
        }
        fs::set_permissions(directory.path().join("lock"), fs::Permissions::from_mode(0o600))
            .unwrap();
        let Source::Copy(copy) = Source::find(directory.path()).unwrap() else {
            panic!("no server runs");
        };
        for (name, is_link) in files {
            let path = copy.path().join(name);
            assert_eq!(fs::read_to_string(&path).unwrap(), name);
            assert_eq!(path.is_symlink(), is_link, "{name}");
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if is_link { 0o400 } else { 0o600 }, "{name}");
        }
        let message = format!("{} is damaged", copy.path().join("wal/1.wal").display());
        let named = format!("{} is damaged", directory.path().join("wal/1.wal").display());
        assert_eq!(copy.named(&message), named);
        for name in left {
            assert!(!copy.path().join(name).exists(), "{name}");
        }
        // Readers do not keep each other out, but they do keep a server out.
        assert!(matches!(Source::find(directory.path()), Ok(Source::Copy(_))));
        assert!(matches!(DirectoryLock::take(directory.path()).unwrap(), Holder::Unknown));
        let path = copy.path().to_path_buf();
        drop(copy);
        assert!(!path.exists());
        let Holder::Nobody(_lock) = DirectoryLock::take(directory.path()).unwrap() else {
            panic!("the reader has ended");
        };
        assert!(matches!(Source::find(directory.path()), Err(CopyError::Busy(_))));
    }

    #[test]
    fn copies_of_killed_processes_are_removed_by_the_next() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        let age = |name: &str| {
            let file = File::open(at(name)).unwrap();
            let made = file.metadata().unwrap().modified().unwrap();
            file.set_modified(made - Duration::from_secs(120)).unwrap();
        };
        for name in ["weir-copy-left", "weir-copy-used", "weir-copy-new", "weir-other"] {
            fs::create_dir_all(at(name).join("wal")).unwrap();
        }
        for name in ["weir-copy-left", "weir-copy-used", "weir-other"] {
            age(name);
        }
        fs::write(at("weir-copy-file"), "").unwrap();
        age("weir-copy-file");
        std::os::unix::fs::symlink(at("weir-other"), at("weir-copy-link")).unwrap();
        let used = in_use(&at("weir-copy-used")).unwrap();
        sweep(temporary.path());
        assert!(!at("weir-copy-left").exists());
        for name in ["used", "new", "file", "link"] {
            assert!(at(&format!("weir-copy-{name}")).exists(), "{name}");
        }
        assert!(at("weir-other/wal").exists());
        drop(used);
        sweep(temporary.path());
        assert!(!at("weir-copy-used").exists());
    }
}
