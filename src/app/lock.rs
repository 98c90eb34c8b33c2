//! Lock of a data directory: one process writes to it. While a server holds the lock, the lock file
//! contains its address and a secret, with which other processes of the same user can send it requests
//! ([`ServerAddress`]).

use std::fs::{File, TryLockError};
use std::io;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Name of the lock file in the data directory.
const FILE_NAME: &str = "lock";

/// Most bytes of a lock file that are read.
const FILE_MAX_BYTES: u64 = 4096;

/// How to reach the server that holds a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAddress {
    /// Process id of the server.
    pub pid: u32,
    /// URL on which it listens, as in `http://127.0.0.1:8000`.
    pub url: String,
    /// Token that proves to the server that the client may read the data directory.
    pub secret: String,
}

/// A held lock. Released when dropped, or when the process ends in any way.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
    /// The directory itself, if it is locked too.
    _directory: Option<File>,
}

/// The holder of a directory's lock.
#[derive(Debug)]
pub enum Holder {
    /// The lock was free; now the caller holds it.
    Nobody(DirectoryLock),
    /// A server that has announced its address.
    Server(ServerAddress),
    /// Another process: a server that has not announced an address yet, or a command that reads.
    Unknown,
}

impl DirectoryLock {
    /// Tries to take the lock of `directory`, which must exist.
    ///
    /// # Errors
    ///
    /// The lock file cannot be opened or read.
    pub fn take(directory: &Path) -> io::Result<Holder> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(FILE_NAME))?;
        match file.try_lock() {
            Ok(()) => {
                // Readers that find no lock file lock the directory instead, if the file system supports it.
                let own = File::open(directory)?;
                if let Err(TryLockError::WouldBlock) = own.try_lock() {
                    return Ok(Holder::Unknown);
                }
                // The content is the outdated address of a previous server.
                file.set_len(0)?;
                Ok(Holder::Nobody(Self { file, _directory: Some(own) }))
            }
            // Readers hold it shared; the address in the file is of a server that has ended.
            Err(TryLockError::WouldBlock) if is_shared(&file) => Ok(Holder::Unknown),
            Err(TryLockError::WouldBlock) => announced(&mut file),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes a shared lock of `directory`: it excludes servers, but not other readers. Writes nothing;
    /// without a lock file, as in a copy of a directory, it locks the directory itself.
    ///
    /// # Errors
    ///
    /// The lock file cannot be opened or read.
    pub fn share(directory: &Path) -> io::Result<Holder> {
        let (mut file, is_directory) = match File::open(directory.join(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (File::open(directory)?, true),
            opened => (opened?, false),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Holder::Nobody(Self { file, _directory: None })),
            // A process has created the lock file since.
            Err(TryLockError::WouldBlock) if is_directory => Ok(Holder::Unknown),
            Err(TryLockError::WouldBlock) => announced(&mut file),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Writes the address of the server that holds the lock into the lock file.
    ///
    /// # Errors
    ///
    /// The lock file cannot be written.
    pub fn announce(&mut self, address: &ServerAddress) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(serde_json::to_string(address)?.as_bytes())
    }
}

/// Whether the lock can be taken shared, that is, no server holds it.
fn is_shared(file: &File) -> bool {
    file.try_lock_shared().is_ok()
}

/// The server that holds the lock, if it has announced its address.
fn announced(file: &mut File) -> io::Result<Holder> {
    let mut text = String::new();
    Read::by_ref(file).take(FILE_MAX_BYTES).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text).map_or(Holder::Unknown, Holder::Server))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{DirectoryLock, Holder, ServerAddress};

    #[test]
    fn one_holder_at_a_time_and_its_address_is_announced() {
        let directory = tempfile::tempdir().unwrap();
        let address = ServerAddress { pid: 7, url: "http://x".into(), secret: "s".into() };
        let Holder::Nobody(mut lock) = DirectoryLock::take(directory.path()).unwrap() else {
            panic!("the directory is new");
        };
        assert!(matches!(DirectoryLock::take(directory.path()).unwrap(), Holder::Unknown));
        lock.announce(&address).unwrap();
        let Holder::Server(announced) = DirectoryLock::take(directory.path()).unwrap() else {
            panic!("an address was announced");
        };
        assert_eq!(announced, address);
        let mode = directory.path().join("lock").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(lock);
        assert!(matches!(DirectoryLock::take(directory.path()).unwrap(), Holder::Nobody(_)));
    }

    #[test]
    fn readers_exclude_a_server_without_a_lock_file() {
        let directory = tempfile::tempdir().unwrap();
        let share = || DirectoryLock::share(directory.path()).unwrap();
        let (Holder::Nobody(one), Holder::Nobody(other)) = (share(), share()) else {
            panic!("readers do not exclude each other");
        };
        assert!(!directory.path().join("lock").exists(), "a reader writes nothing");
        assert!(matches!(DirectoryLock::take(directory.path()).unwrap(), Holder::Unknown));
        drop(one);
        assert!(matches!(DirectoryLock::take(directory.path()).unwrap(), Holder::Unknown));
        drop(other);
        let taken = DirectoryLock::take(directory.path()).unwrap();
        assert!(matches!(taken, Holder::Nobody(_)));
        assert!(matches!(share(), Holder::Unknown));
        std::fs::remove_file(directory.path().join("lock")).unwrap();
        assert!(matches!(share(), Holder::Unknown), "the directory itself is locked");
    }
}
