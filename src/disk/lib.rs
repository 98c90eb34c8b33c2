//! File system abstraction: the traits [`Disk`], [`DiskFile`] and [`DiskDir`], with the real implementation
//! ([`OsDisk`]) and a simulated one for tests that loses unsynced writes (crate `weir-sim`). The log and the object
//! store of the tables use nothing else. Every call fails as the file system does. No file formats here.
//!
//! # Why a trait
//!
//! Crash tests need a disk that can fail at every operation and that loses everything that was not synced:
//! file contents without `sync_data`, names without `sync_dir`.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fmt, fs, io};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A file system. Paths are absolute or relative to the process; all calls block.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Creates a file for reading and writing. Fails with `AlreadyExists` if the name is taken.
    /// The name survives a power cut only after [`Disk::sync_dir`] of its directory.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file for reading and writing; read-only if it is a symbolic link, or writing is not
    /// permitted.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Creates a directory and its parents, unless they exist.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Lists a directory, in no order. Fails with `NotFound` if there is none.
    fn list(&self, dir: &Path) -> io::Result<Vec<DiskEntry>>;
    /// The file or directory at `path`. Fails with `NotFound` if there is none.
    fn metadata(&self, path: &Path) -> io::Result<DiskEntry>;
    /// Renames a file; replaces the target. Durable after `sync_dir` of both directories.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a second name for the file. Fails with `AlreadyExists` if the name is taken: commits use it
    /// as an atomic "create if absent".
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after `sync_dir`.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Opens a directory to sync its names later. A caller that must not fail between a change of a name
    /// and its sync opens the directory first: only opening fails if the process is out of descriptors.
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn DiskDir>>;
    /// Makes the names in `dir` durable: creations, renames, removals.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.open_dir(dir)?.sync()
    }
    /// Free bytes for this process on the file system of `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// An open file of a [`Disk`]. Reads and writes are positioned, so that threads can share one handle.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Writes all of `bytes` at `offset`, extending the file if needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reads into `buffer` from `offset`; fewer bytes than requested only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Length in bytes.
    fn len_bytes(&self) -> io::Result<u64>;
    /// Allocates disk space, and sets the length to at least `len_bytes`; new bytes read as zero.
    fn allocate(&self, len_bytes: u64) -> io::Result<()>;
    /// Makes the contents durable (`fdatasync`). After an error the state of all earlier unsynced writes is
    /// unknown, and the success of a retry proves nothing (Rebello et al., "Can Applications Recover from
    /// fsync Failures?", 2020).
    fn sync_data(&self) -> io::Result<()>;
}

/// An open directory of a [`Disk`].
pub trait DiskDir: fmt::Debug + Send + Sync {
    /// Makes the current names in the directory durable.
    fn sync(&self) -> io::Result<()>;
}

/// Whether the error is that the process or the system is out of file descriptors. The call had no effect,
/// and a later attempt may succeed.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskEntry {
    /// Full path.
    pub path: PathBuf,
    /// Whether it names a directory.
    pub is_dir: bool,
    /// Length of the file in bytes; meaningless for a directory.
    pub len_bytes: u64,
    /// Last modification.
    pub modified: SystemTime,
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = fs::File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => Ok(Box::new(OsFile(file.into()))),
            // A working copy of a data directory has links to files that must not change. And commands may
            // read files on a read-only file system, or without write permission.
            Err(Errno::LOOP | Errno::ROFS | Errno::ACCESS) => {
                Ok(Box::new(OsFile(fs::File::open(path)?)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DiskEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            match self.metadata(&path) {
                Ok(entry) => entries.push(entry),
                // Removed between the listing and the call: not listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> io::Result<DiskEntry> {
        let metadata = fs::metadata(path)?;
        Ok(DiskEntry {
            path: path.to_path_buf(),
            is_dir: metadata.is_dir(),
            len_bytes: metadata.len(),
            modified: metadata.modified()?,
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn DiskDir>> {
        Ok(Box::new(OsDir(fs::File::open(dir)?)))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct OsDir(fs::File);

impl DiskDir for OsDir {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[derive(Debug)]
struct OsFile(fs::File);

impl DiskFile for OsFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&self.0, flags, 0, len_bytes) {
            Ok(()) => Ok(()),
            // File systems without fallocate (some network and overlay ones) can still set a length.
            Err(Errno::OPNOTSUPP) if self.len_bytes()? < len_bytes => self.0.set_len(len_bytes),
            Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
