//! A working copy of a data directory, for commands that read it while no server runs: [`WorkingCopy`].
//!
//! Engines cannot open a directory without changing it: the identity store and SQLite recover what a crash
//! left, and the log ends a torn write. So they open a copy in a temporary directory, and the data directory
//! stays as it is, byte for byte.
//!
//! | part | in the copy |
//! |---|---|
//! | `tables/events/` | links: its files never change |
//! | `identity/` | the files of `tables/` as links, since they never change; journals and manifests as copies |
//! | `wal/` | the newest segments as copies, since recovery writes to them; older ones as links |
//! | `metadata.db`, its write-ahead log, `node-id` | copies |
//!
//! Links are symbolic, so the copy may be on another file system, and [`crate::storage::disk::OsDisk`] opens
//! them for reading only. The copy holds a shared lock of the data directory: no server starts on it meanwhile,
//! and several readers do not keep each other out.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::app::lock::DirectoryLock;
use crate::app::lock::Holder;
use crate::app::lock::ServerAddress;

/// The file that every data directory has.
const METADATA: &str = "metadata.db";

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
    #[error("{} is not a Weir data directory: it has no file {METADATA}", .0.display())]
    Foreign(PathBuf),
    /// A process holds the lock and has not announced an address.
    #[error("{} is in use by another process, which may be a server that starts", .0.display())]
    Busy(PathBuf),
    /// A file or directory.
    #[error("cannot make a working copy of {}", path.display())]
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
        match DirectoryLock::share(data_dir).map_err(CopyError::io(data_dir))? {
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

    fn make(data_dir: &Path, lock: DirectoryLock) -> Result<Self, CopyError> {
        if !data_dir.join(METADATA).is_file() {
            return Err(CopyError::Foreign(data_dir.to_path_buf()));
        }
        // Links need the whole path.
        let data_dir = std::path::absolute(data_dir).map_err(CopyError::io(data_dir))?;
        let copy = tempfile::Builder::new().prefix("weir-").tempdir();
        let copy = copy.map_err(CopyError::io(&data_dir))?;
        let fill = |name: &str, way: &dyn Fn(&Path) -> Way| {
            let from = data_dir.join(name);
            place(&from, &copy.path().join(name), way).map_err(CopyError::io(&from))
        };
        // Before the database: should `weir keys` move its pages over meanwhile, they are in both.
        fill("metadata.db-wal", &|_| Way::Copy)?;
        fill(METADATA, &|_| Way::Copy)?;
        fill("node-id", &|_| Way::Copy)?;
        fs::create_dir(copy.path().join("tables")).map_err(CopyError::io(copy.path()))?;
        fill("tables/events", &|_| Way::Link)?;
        fill("identity", &|file| if is_in(file, "tables") { Way::Link } else { Way::Copy })?;
        let newest = newest_segments(&data_dir.join("wal"));
        let newest = newest.map_err(CopyError::io(&data_dir.join("wal")))?;
        fill("wal", &|file| match () {
            () if !is_segment(file) || is_in(file, "quarantine") => Way::Leave,
            () if newest.iter().any(|segment| segment == file) => Way::Copy,
            () => Way::Link,
        })?;
        Ok(Self { copy, _lock: lock })
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
        Way::Copy => fs::copy(from, to).map(|_| ()),
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

    use super::CopyError;
    use super::Source;
    use crate::app::lock::DirectoryLock;
    use crate::app::lock::Holder;

    #[test]
    fn what_may_be_written_is_copied_and_the_rest_linked() {
        let directory = tempfile::tempdir().unwrap();
        let segment = |number: u32| format!("wal/{number:020}.wal");
        let files = [
            ("metadata.db", false),
            ("metadata.db-wal", false),
            ("node-id", false),
            ("tables/events/month=2026-11/a.parquet", true),
            ("identity/0.jnl", false),
            ("identity/keyspaces/1/manifest", false),
            ("identity/keyspaces/1/tables/7", true),
            (&segment(1), true),
            (&segment(2), false),
            (&segment(3), false),
            (&segment(4), false),
        ];
        let left =
            ["lock", "metadata.db-shm", "wal/spare", "wal/quarantine/1.wal", "person-columns/1"];
        for name in files.iter().map(|(name, _)| *name).chain(left) {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let Source::Copy(copy) = Source::find(directory.path()).unwrap() else {
            panic!("no server runs");
        };
        for (name, is_link) in files {
            let path = copy.path().join(name);
            assert_eq!(fs::read_to_string(&path).unwrap(), name);
            assert_eq!(path.is_symlink(), is_link, "{name}");
        }
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
}
