//! Simulated disk for crash tests: an in-memory [`Disk`] that loses unsynced writes when a test cuts the
//! power at any operation. It does not interpret the files.
//!
//! # What is modelled
//!
//! The weakest guarantees that POSIX allows, so that code that passes here is correct on any file system:
//!
//! - Contents survive a power cut only after `sync_data` of the file, names only after `sync_dir` of their
//!   directory. This includes new directories: their name is in their parent.
//! - Unsynced writes survive per sector of 512 bytes: each sector has its state at some time since the last
//!   sync, independently of its neighbours. The same holds for lengths. So a file can be long and full of
//!   zeros, or have its last write without the previous one.
//! - Unsynced name changes survive independently of each other and of contents; one rename is
//!   atomic within a directory, and across two once both are synced.
//! - A write during which the power is cut leaves half of its bytes.
//! - After a failed `sync_data` the unsynced writes can still be read, but no later sync writes them to the
//!   disk (Linux marks the pages clean).

mod contents;
mod state;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::disk::contents::{Random, SimFile, copy_at, to_u64, to_usize};
use crate::disk::state::{FileId, State, Target, power_off};
use weir_disk::{Disk, DiskDir, DiskEntry, DiskFile};

/// Capacity of a new disk: more than a test fills.
const CAPACITY_BYTES: u64 = 1 << 40;

/// What happens to unsynced state in a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All unsynced state is lost.
    Lose,
    /// All state survives, as after the end of the process alone.
    Keep,
    /// Each unsynced sector, length and name change survives or not, at random from this seed.
    Mixed(u64),
}

/// The simulated disk; clones share it. It starts empty, with the directories `/` and the relative root.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk with the power on.
    pub fn new() -> Self {
        Self::with(State::default())
    }

    /// Lets the first `count` mutating operations of this disk succeed and cuts the power during the next
    /// one. From then on every call fails, on every handle.
    pub fn cut_after(&self, count: u64) {
        self.state.lock().cut_after = Some(count);
    }

    /// Lets `count` more calls of `sync_data` succeed and fails the next one, once. The writes of that call
    /// never become durable.
    pub fn fail_sync_after(&self, count: u64) {
        self.state.lock().syncs_until_failure = Some(count);
    }

    /// Makes every later call of `open` with this path fail; `None` for no path.
    pub fn fail_open_of(&self, path: Option<&Path>) {
        self.state.lock().unreadable = path.map(normal);
    }

    /// Lets `count` more files and directories be opened, as if the process was out of descriptors then;
    /// `None` for no limit.
    pub fn limit_opens(&self, count: Option<u64>) {
        self.state.lock().opens_left = count;
    }

    /// Makes creating and renaming of files fail, as in a directory of another user.
    pub fn refuse_names(&self, refused: bool) {
        self.state.lock().names_refused = refused;
    }

    /// Sets the capacity in bytes. A write beyond it fills the disk and then fails with `StorageFull`.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// Whether the power has been cut.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Mutating operations performed so far: creations (each new directory counts), writes,
    /// allocations, name changes, syncs.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// A copy of the disk after the power is back, with operations counted from zero. This disk is
    /// unchanged, so that tests can try many outcomes of one power cut.
    pub fn power_on(&self, survival: Survival) -> Self {
        let state = self.state.lock();
        let mut random = Random(match survival {
            Survival::Mixed(seed) => seed,
            Survival::Lose | Survival::Keep => 0,
        });
        let names = state.surviving_names(survival, &mut random);
        let mut files = BTreeMap::new();
        for (id, file) in &state.files {
            if names.values().any(|target| *target == Target::File(*id)) {
                let contents = file.surviving(survival, &mut random);
                files.insert(*id, SimFile::settled(contents, file.modified));
            }
        }
        Self::with(State {
            capacity_bytes: state.capacity_bytes,
            next_file: state.next_file,
            files,
            durable_names: names.clone(),
            names,
            ..State::default()
        })
    }

    fn with(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn powered(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.is_off { Err(power_off()) } else { Ok(state) }
    }

    /// Locks the state for an operation that takes a descriptor.
    fn opening(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.powered()?;
        if let Some(left) = &mut state.opens_left {
            *left = left.checked_sub(1).ok_or(Errno::MFILE)?;
        }
        Ok(state)
    }

    fn handle(&self, id: FileId) -> Box<dyn DiskFile> {
        Box::new(SimHandle { disk: self.clone(), id })
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

impl Disk for SimDisk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let path = normal(path);
        let mut state = self.opening()?;
        state.check_names()?;
        state.check_free(&path)?;
        state.begin()?;
        let id = FileId(state.next_file);
        state.next_file += 1;
        let modified = state.now();
        state.files.insert(id, SimFile::settled(Vec::new(), modified));
        state.change_names(vec![(path, Some(Target::File(id)))]);
        Ok(self.handle(id))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let path = normal(path);
        let state = self.opening()?;
        if state.unreadable.as_ref() == Some(&path) {
            return Err(io::Error::other("simulated failure of open"));
        }
        let id = state.file_at(&path)?;
        Ok(self.handle(id))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = self.powered()?;
        let mut missing: Vec<&Path> = path.ancestors().collect();
        missing.reverse();
        for dir in missing {
            match state.target(dir) {
                Some(Target::Dir) => {}
                Some(Target::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    state.begin()?;
                    state.change_names(vec![(dir.to_path_buf(), Some(Target::Dir))]);
                }
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DiskEntry>> {
        let dir = normal(dir);
        let state = self.opening()?;
        state.check_dir(&dir)?;
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir.as_path()));
        inside.map(|path| state.entry(path)).collect()
    }

    fn metadata(&self, path: &Path) -> io::Result<DiskEntry> {
        self.powered()?.entry(&normal(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        let mut state = self.powered()?;
        state.check_names()?;
        let id = state.file_at(&from)?;
        match state.target(&to) {
            Some(Target::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Target::File(_)) => {}
            None => state.check_free(&to)?,
        }
        state.begin()?;
        if from != to {
            state.change_names(vec![(to, Some(Target::File(id))), (from, None)]);
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let to = normal(to);
        let mut state = self.powered()?;
        let id = state.file_at(&normal(from))?;
        state.check_free(&to)?;
        state.begin()?;
        state.change_names(vec![(to, Some(Target::File(id)))]);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = self.powered()?;
        state.file_at(&path)?;
        state.begin()?;
        state.change_names(vec![(path, None)]);
        Ok(())
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn DiskDir>> {
        let dir = normal(dir);
        self.opening()?.check_dir(&dir)?;
        Ok(Box::new(SimDir { disk: self.clone(), dir }))
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.powered()?.free_bytes())
    }
}

/// An open directory. Directories are never removed.
#[derive(Debug)]
struct SimDir {
    disk: SimDisk,
    dir: PathBuf,
}

impl DiskDir for SimDir {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.powered()?;
        state.begin()?;
        state.sync_names(&self.dir);
        Ok(())
    }
}

/// An open file, which outlives its names, as on Unix.
#[derive(Debug)]
struct SimHandle {
    disk: SimDisk,
    id: FileId,
}

impl DiskFile for SimHandle {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = to_usize(offset)?;
        let mut state = self.disk.powered()?;
        let fits = state.check_room(self.id, offset.saturating_add(bytes.len()));
        let room = state.room(self.id)?.saturating_sub(offset);
        let begun = state.begin();
        let written = match (&begun, &fits) {
            (Ok(()), Ok(())) => bytes.len(),
            // A full disk writes the bytes that fit before it fails.
            (Ok(()), Err(_)) => room.min(bytes.len()),
            (Err(_), _) => room.min(bytes.len() / 2),
        };
        let modified = state.now();
        let bytes = bytes.get(..written).unwrap_or_default();
        state.file_mut(self.id)?.write(bytes, offset, modified);
        begun.and(fits)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.powered()?;
        let contents = &state.file_mut(self.id)?.contents;
        let rest = contents.get(to_usize(offset)?..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        copy_at(buffer, 0, rest.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(to_u64(self.disk.powered()?.file_mut(self.id)?.contents.len()))
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        let len = to_usize(len_bytes)?;
        let mut state = self.disk.powered()?;
        state.check_room(self.id, len)?;
        state.begin()?;
        state.file_mut(self.id)?.grow(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.powered()?;
        state.begin()?;
        let fails = state.syncs_until_failure == Some(0);
        state.syncs_until_failure =
            state.syncs_until_failure.and_then(|count| count.checked_sub(1));
        let file = state.file_mut(self.id)?;
        if fails {
            file.forget_dirt();
            return Err(io::Error::other("simulated failure of sync_data"));
        }
        file.sync();
        Ok(())
    }
}

/// Normal form of a path: without `.` and doubled slashes.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}
