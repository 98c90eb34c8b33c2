//! Images of the store: directories with what a crash at one moment would leave, of which opening the database
//! recovers as it does after any crash. [`Identities::image`] makes one. Where images go is not known here.
//!
//! [`Identities::image`]: super::store::Identities::image
//!
//! # Why an image is the state as of one record
//!
//! The database keeps rows in journals until they are in files of tables. Everything that writes rows holds the writer
//! lock of the store, so while an image holds it, no row is added. Flushes and compactions go on: they move rows from
//! journals to tables, and from tables to others. So:
//!
//! 1. The journals are copied first. A journal is removed only after versions with all of its rows are on the disk, and
//!    versions are held later. So whatever is moved or removed meanwhile, the journals that were copied and the tables
//!    together have every row; those that are in both are skipped by the recovery, by their numbers.
//! 2. Of each keyspace, one version is held, of which the file `current` on the disk has the number, and that file and the
//!    version's own are copied. The database writes both before it has the version in memory, so the numbers differ
//!    for a moment, and this is tried again. No later version has been held, so none has later rows.
//! 3. The lock is released. What is added from here on is in journals and versions that are not in the image.
//! 4. The tables of the held versions are linked. The database removes a table when nobody holds a version with it.
//!
//! # What is copied, and what is linked
//!
//! The database writes a table once, and syncs it before a version names it (fjall 3.1.13, lsm-tree 3.1.10:
//! `table/writer`, `version/persist.rs`), so a table that a version names does not change under its name, and a link is
//! enough. All other files are copied. Journals are appended to, and cut when they are read; `current` is replaced; and
//! the file of a version is written over in place if a former attempt to write it has failed. The list of keyspaces, which
//! is keyspace 0, changes only when the database is opened, under the same lock.
//!
//! Keyspaces whose values are in separate files would have such a directory beside their tables; there are none (see
//! `tables`). All of this is no promise of the database: `tests/images.rs` checks it, and the version of the database is
//! pinned by the lock file.

use std::fs::File;
use std::io;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fjall::{Keyspace, PersistMode};

use crate::tables::{Held, Tables};
use crate::{DATABASE_FORMAT, IdentityError};

/// Names that the database gives: its directory of keyspaces, the first of which lists the others; the file that it locks, which has to exist; in a keyspace, the file with the number of the newest version, and
/// the directory of the tables.
const KEYSPACES: &str = "keyspaces";
const LIST_OF_KEYSPACES: &str = "0";
const LOCK: &str = "lock";
const CURRENT: &str = "current";
const TABLES: &str = "tables";

/// End of the names of journals.
const JOURNAL: &str = "jnl";

/// Attempts to find a keyspace with the same newest version in memory and on the disk, and the pause between them. Two
/// syncs of the database are between these.
const ATTEMPTS_MAX: u32 = 5_000;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(1);

/// Bytes of a journal that are copied at once.
const STEP_BYTES: usize = 1 << 20;

/// A file of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Its path in the directory of the image, with slashes.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Whether the next image has the same contents under this path, if it has a file with this path that was last
    /// changed at the same time.
    pub is_immutable: bool,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Sequence of the last record that was applied to it.
    pub applied: u64,
    /// Its files.
    pub files: Vec<ImageFile>,
}

/// An image of which everything but the tables is there.
pub(super) struct Drawn {
    to: PathBuf,
    files: Vec<ImageFile>,
    held: Vec<Held>,
}

impl Drawn {
    /// Makes the part of an image for which the caller has to hold the writer lock.
    ///
    /// # Errors
    ///
    /// See [`Identities::image`](super::store::Identities::image).
    pub(super) fn begin(tables: &Tables, from: &Path, to: &Path) -> Result<Self, IdentityError> {
        std::fs::create_dir_all(to).map_err(failed(to))?;
        let mut drawn = Self { to: to.to_path_buf(), files: Vec::new(), held: Vec::new() };
        // Into the files; what is in memory of this process is in no copy. Fails if a write failed before.
        tables.database.persist(PersistMode::Buffer)?;
        drawn.copy_journals(from)?;
        drawn.add(DATABASE_FORMAT, std::fs::read(from.join(DATABASE_FORMAT)), from)?;
        drawn.add(LOCK, Ok(Vec::new()), from)?;
        drawn.link_list(&from.join(KEYSPACES).join(LIST_OF_KEYSPACES))?;
        for keyspace in tables.keyspaces() {
            let held = drawn.copy_version(keyspace)?;
            drawn.held.push(held);
        }
        Ok(drawn)
    }

    /// Links the tables.
    pub(super) fn finish(mut self, applied: u64) -> Result<Image, IdentityError> {
        for held in std::mem::take(&mut self.held) {
            let keyspace = name_of(&held.directory)?;
            for file in &held.files {
                self.link(&keyspace, file)?;
            }
        }
        Ok(Image { applied, files: self.files })
    }

    /// Copies all journals, without the zeros behind their ends: the database allocates them in advance. The last
    /// byte of a batch is not zero.
    fn copy_journals(&mut self, from: &Path) -> Result<(), IdentityError> {
        for entry in std::fs::read_dir(from).map_err(failed(from))? {
            let path = entry.map_err(failed(from))?.path();
            if path.extension().is_none_or(|extension| extension != JOURNAL) {
                continue;
            }
            let name = name_of(&path)?;
            let journal = match File::open(&path) {
                // All of its rows have been in tables since before it was removed.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(failed(&path))?,
            };
            let bytes = copy_without_end(journal, &self.to.join(&name)).map_err(failed(&path))?;
            self.files.push(ImageFile { path: name, bytes, is_immutable: false });
        }
        Ok(())
    }

    /// The list of keyspaces, which does not change while the database is open.
    fn link_list(&mut self, directory: &Path) -> Result<(), IdentityError> {
        let current = std::fs::read(directory.join(CURRENT)).map_err(failed(directory))?;
        let version = version_of(&current).ok_or_else(|| damaged(directory))?;
        self.add_version(LIST_OF_KEYSPACES, directory, current, version)?;
        let tables = directory.join(TABLES);
        for entry in std::fs::read_dir(&tables).map_err(failed(&tables))? {
            let path = entry.map_err(failed(&tables))?.path();
            self.link(LIST_OF_KEYSPACES, &path)?;
        }
        Ok(())
    }

    /// Holds the newest version of a keyspace, and copies the files that name it.
    fn copy_version(&mut self, keyspace: &Keyspace) -> Result<Held, IdentityError> {
        for _ in 0..ATTEMPTS_MAX {
            let held = Tables::hold(keyspace);
            let directory = &held.directory;
            let current = std::fs::read(directory.join(CURRENT)).map_err(failed(directory))?;
            if version_of(&current) == Some(held.version) {
                let name = name_of(directory)?;
                match self.add_version(&name, directory, current, held.version) {
                    Ok(()) => return Ok(held),
                    // It was removed, as there is a newer one.
                    Err(IdentityError::Image { source, .. })
                        if source.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            std::thread::sleep(ATTEMPT_PAUSE);
        }
        let source = io::Error::new(ErrorKind::TimedOut, "its files change all the time");
        Err(IdentityError::Image { path: keyspace.path().to_path_buf(), source })
    }

    fn add_version(
        &mut self,
        keyspace: &str,
        directory: &Path,
        current: Vec<u8>,
        version: u64,
    ) -> Result<(), IdentityError> {
        let name = format!("v{version}");
        let contents = std::fs::read(directory.join(&name)).map_err(failed(directory))?;
        self.add(&format!("{KEYSPACES}/{keyspace}/{name}"), Ok(contents), directory)?;
        self.add(&format!("{KEYSPACES}/{keyspace}/{CURRENT}"), Ok(current), directory)
    }

    /// Writes a small file.
    fn add(
        &mut self,
        path: &str,
        contents: io::Result<Vec<u8>>,
        from: &Path,
    ) -> Result<(), IdentityError> {
        let (contents, target) = (contents.map_err(failed(from))?, self.to.join(path));
        self.make_parent(&target)?;
        std::fs::write(&target, &contents).map_err(failed(&target))?;
        let bytes = u64::try_from(contents.len()).unwrap_or(u64::MAX);
        self.files.push(ImageFile { path: path.to_owned(), bytes, is_immutable: false });
        Ok(())
    }

    fn link(&mut self, keyspace: &str, table: &Path) -> Result<(), IdentityError> {
        let path = format!("{KEYSPACES}/{keyspace}/{TABLES}/{}", name_of(table)?);
        let target = self.to.join(&path);
        self.make_parent(&target)?;
        std::fs::hard_link(table, &target).map_err(failed(table))?;
        let bytes = std::fs::metadata(&target).map_err(failed(&target))?.len();
        self.files.push(ImageFile { path, bytes, is_immutable: true });
        Ok(())
    }

    fn make_parent(&self, target: &Path) -> Result<(), IdentityError> {
        let parent = target.parent().unwrap_or(&self.to);
        std::fs::create_dir_all(parent).map_err(failed(parent))
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_path_buf();
    move |source| IdentityError::Image { path, source }
}

fn damaged(path: &Path) -> IdentityError {
    failed(path)(ErrorKind::InvalidData.into())
}

/// The number of the version that the contents of `current` name.
fn version_of(current: &[u8]) -> Option<u64> {
    current.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn name_of(path: &Path) -> Result<String, IdentityError> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| damaged(path))
}

/// Copies a file up to its last byte that is not zero. Returns the size of the copy.
fn copy_without_end(mut from: File, to: &Path) -> io::Result<u64> {
    let mut copy = File::create(to)?;
    let (mut buffer, zeros) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
    let (mut position, mut end) = (0_u64, 0_u64);
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        // Compared at once, which is fast: most of a journal may be allocated in advance.
        if Some(bytes) != zeros.get(..read)
            && let Some(last) = bytes.iter().rposition(|byte| *byte != 0)
        {
            copy.seek(SeekFrom::Start(position))?;
            copy.write_all(bytes.get(..=last).unwrap_or_default())?;
            end = position + u64::try_from(last).unwrap_or(u64::MAX) + 1;
        }
        position += u64::try_from(read).unwrap_or(u64::MAX);
    }
    Ok(end)
}
