//! Working copy of a data directory, for commands that read it while no server runs: [`WorkingCopy`].
//!
//! Engines change a directory when they open it: the identity store and SQLite run crash recovery, and the
//! log cuts off a torn write. So they open a copy in a temporary directory, and the data directory stays
//! unchanged, byte for byte.
//!
//! | part | in the copy |
//! |---|---|
//! | `tables/events/`, `tables/persons/`, `tables/person_distinct_ids/` | links: their files never change |
//! | `identity/` | the files in `tables/` as links, since they never change; journals and manifests as copies |
//! | `wal/` | the newest segments as copies, since recovery writes to them; older ones as links |
//! | `metadata.db`, its `-wal` and `-shm` files, `node-id`, `storage-url` | copies |
//!
//! Tables in a bucket are read where they are, and what a replay writes of them goes to the copy
//! ([`weir_storage::overlay`]).
//!
//! Links are symbolic, so the copy may be on another file system, and [`weir_disk::OsDisk`] opens
//! them read-only. The copy holds a shared lock on the data directory: no server starts on it meanwhile, and
//! several readers can run at once.
//!
//! A killed process leaves its copy behind. The next command that makes a copy removes it: a copy in use is
//! locked, and the lock ends with the process.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use tempfile::TempDir;

use crate::lock::{DirectoryLock, Holder, ServerAddress};
use crate::tables::table_specs;

/// File of projects, users and keys.
const METADATA: &str = "metadata.db";

/// Parts of a data directory. A directory with none of them is no data directory.
const PARTS: [&str; 4] = [METADATA, "tables", "wal", "identity"];

/// Prefix of the names of copies in the temporary directory.
const PREFIX: &str = "weir-copy-";

/// Age from which an unlocked copy counts as left behind, and not as one that is being made.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// Newest segments of the log that are copied and not linked. Recovery may write to the newest, and to the
/// one before it if the newest has no record yet; one more is a reserve.
const SEGMENTS_COPIED: usize = 3;

/// Why no working copy can be made.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is no directory with this path.
    #[error("there is no directory {}", .0.display())]
    Absent(PathBuf),
    /// The directory is no data directory.
    #[error("{} is not a Weir data directory: it has none of {}", .0.display(), PARTS.join(", "))]
    Foreign(PathBuf),
    /// The lock file cannot be opened or read.
    #[error("cannot lock {}", path.display())]
    Lock {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A process holds the lock and has not announced an address.
    #[error("{} is in use by another process, for example a server that is starting; try again", .0.display())]
    Busy(PathBuf),
    /// A file or directory cannot be copied or linked.
    #[error(
        "cannot make a working copy of {} in {}; TMPDIR names another place",
        path.display(), std::env::temp_dir().display()
    )]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl CopyError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }
}

/// The source that a command reads.
#[derive(Debug)]
pub enum Source {
    /// A running server, which answers requests.
    Server(ServerAddress),
    /// A working copy; no server runs.
    Copy(WorkingCopy),
}

/// A temporary directory that engines may open. Dropping the value removes it.
#[derive(Debug)]
pub struct WorkingCopy {
    copy: TempDir,
    /// The copied data directory.
    data_dir: PathBuf,
    /// Lock that marks the copy as in use.
    _in_use: File,
    _lock: DirectoryLock,
}

/// Whether a file is copied or linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Link,
    Copy,
    Leave,
}

impl Source {
    /// Finds the server that runs on `data_dir`, or makes a working copy. Does not write to `data_dir`.
    ///
    /// # Errors
    ///
    /// The directory does not exist, is no data directory, or is in use by a process without an announced
    /// address, or the copy cannot be made.
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

    /// The message `text` with paths of the copy replaced by paths of the data directory: the copy is removed
    /// before the message is read.
    pub fn named(&self, text: &str) -> String {
        text.replace(&*self.path().to_string_lossy(), &self.data_dir.to_string_lossy())
    }

    fn make(given: &Path, lock: DirectoryLock) -> Result<Self, CopyError> {
        if !PARTS.iter().any(|part| given.join(part).exists()) {
            return Err(CopyError::Foreign(given.to_path_buf()));
        }
        // Links need an absolute path.
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
        // SQLite recreates it. If it exists without `metadata.db-wal`, that file was lost.
        fill("metadata.db-shm", &|_| Way::Copy)?;
        fill("node-id", &|_| Way::Copy)?;
        fill("storage-url", &|_| Way::Copy)?;
        fs::create_dir(copy.path().join("tables")).map_err(CopyError::io(copy.path()))?;
        for spec in table_specs() {
            fill(&format!("tables/{}", spec.name), &|_| Way::Link)?;
        }
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

/// Locks a copy as in use, until the returned file is dropped.
fn in_use(copy: &Path) -> io::Result<File> {
    let directory = File::open(copy)?;
    directory.try_lock()?;
    Ok(directory)
}

/// Removes the copies in `temporary` that killed processes of this user have left. A copy that cannot be
/// removed stays for the next command; it only takes disk space.
fn sweep(temporary: &Path) {
    let Ok(entries) = fs::read_dir(temporary) else { return };
    for entry in entries.flatten() {
        let is_named = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        // The metadata of the entry itself, not of the target of a link.
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

/// Copies or links the file or directory `from`, if it exists, to `to`.
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
            // The original may be read-only.
            fs::set_permissions(to, fs::Permissions::from_mode(0o600))
        }
        Way::Leave => Ok(()),
    }
}

/// The segments of the log that are copied: the newest by name, as names sort in the order of sequences.
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

/// Whether the parent directory of `file` has the name `directory`.
fn is_in(file: &Path, directory: &str) -> bool {
    file.parent().and_then(Path::file_name).is_some_and(|name| name == directory)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::{CopyError, Source, in_use, sweep};
    use crate::lock::{DirectoryLock, Holder};

    #[test]
    fn what_may_be_written_is_copied_and_the_rest_linked() {
        let directory = tempfile::tempdir().unwrap();
        let segment = |number: u32| format!("wal/{number:020}.wal");
        let files = [
            ("metadata.db", false),
            ("metadata.db-wal", false),
            ("metadata.db-shm", false),
            ("node-id", false),
            ("storage-url", false),
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
        let left = ["lock", "wal/spare", "wal/quarantine/1.wal"];
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
        // Readers do not exclude each other, but they exclude a server.
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
