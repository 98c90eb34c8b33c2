//! A disk in memory that forgets what was not synced, for tests that cut the power at every
//! operation. Nothing here knows what the files mean.
//!
//! # What is modelled
//!
//! The strictest reading of POSIX, so that whoever passes here passes on any file system:
//!
//! - Contents survive a power cut only after `sync_data` of the file, names only after `sync_dir`
//!   of their directory. That holds for new directories too: their name is in their parent.
//! - Unsynced writes survive in sectors of 512 bytes, each sector as it was at some moment since
//!   the last sync, independently of its neighbours; lengths likewise. A file can thus be long
//!   and full of zeros, or have its last write without the one before.
//! - Unsynced name changes survive independently of each other and of contents; one rename is
//!   atomic within a directory, and across two once both are synced.
//! - A write that is under way when the power goes leaves half of its bytes.
//! - After a failed `sync_data` the unsynced writes still read back, but no later sync brings
//!   them to the disk (Linux marks the pages clean).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use parking_lot::Mutex;
use parking_lot::MutexGuard;

use crate::storage::disk::Disk;
use crate::storage::disk::DiskEntry;
use crate::storage::disk::DiskFile;

/// What a drive writes at once or not at all: the smallest sector in use.
const SECTOR_BYTES: usize = 512;

/// Room on a new disk: more than a test fills.
const CAPACITY_BYTES: u64 = 1 << 40;

/// What becomes of the unsynced state in a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Only what was synced is found again.
    Lose,
    /// Everything is found again, as after the death of the process alone.
    Keep,
    /// Each unsynced sector, length and name change survives or not, drawn from this seed.
    Mixed(u64),
}

/// The simulated disk; clones are handles on the same one. It starts empty, with the directories
/// `/` and the relative root.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk with the power on.
    pub fn new() -> Self {
        Self::with(State::default())
    }

    /// Lets the first `count` mutating operations since the start of this disk through and cuts
    /// the power in the next one. From then on every call fails, on every handle.
    pub fn cut_after(&self, count: u64) {
        self.state.lock().cut_after = Some(count);
    }

    /// Lets `count` more calls of `sync_data` succeed and fails the next one, once. The writes
    /// that it should have made durable stay volatile for ever.
    pub fn fail_sync_after(&self, count: u64) {
        self.state.lock().syncs_until_failure = Some(count);
    }

    /// Sets the size of the disk in bytes. Writes beyond it fail with `StorageFull`.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// Mutating operations performed so far: creations (each new directory counts), writes,
    /// allocations, name changes, syncs.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// The disk as it is found when the power comes back, with operations counted from zero. This
    /// one stays as it is, so that many outcomes of one cut can be tried.
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
                let file = SimFile { durable: contents.clone(), contents, ..file.without_writes() };
                files.insert(*id, file);
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
        let mut state = self.powered()?;
        state.check_free(&path)?;
        state.begin()?;
        let id = FileId(state.next_file);
        state.next_file += 1;
        let modified = state.now();
        state.files.insert(id, SimFile { modified, ..SimFile::default() });
        state.change_names(vec![(path, Some(Target::File(id)))]);
        Ok(self.handle(id))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let id = self.powered()?.file_at(&normal(path))?;
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
        let state = self.powered()?;
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

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir);
        let mut state = self.powered()?;
        state.check_dir(&dir)?;
        state.begin()?;
        state.sync_names(&dir);
        Ok(())
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.powered()?.free_bytes())
    }
}

/// An open file. It outlives its names, as on Unix.
#[derive(Debug)]
struct SimHandle {
    disk: SimDisk,
    id: FileId,
}

impl DiskFile for SimHandle {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = to_usize(offset)?;
        let mut state = self.disk.powered()?;
        state.check_room(self.id, offset.saturating_add(bytes.len()))?;
        let begun = state.begin();
        let bytes = match begun {
            Ok(()) => bytes,
            Err(_) => bytes.get(..bytes.len() / 2).unwrap_or_default(),
        };
        let modified = state.now();
        state.file_mut(self.id)?.write(bytes, offset, modified);
        begun
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId(u64);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Dir,
    File(FileId),
}

/// A parent sorts before its children, because paths compare by component.
type Names = BTreeMap<PathBuf, Target>;

/// One atomic change of names: what each path names from now on, `None` for nothing.
type NameChange = Vec<(PathBuf, Option<Target>)>;

struct State {
    operations: u64,
    cut_after: Option<u64>,
    is_off: bool,
    syncs_until_failure: Option<u64>,
    capacity_bytes: u64,
    next_file: u64,
    files: BTreeMap<FileId, SimFile>,
    /// As every running process sees them.
    names: Names,
    /// As they are certain to be found after a power cut.
    durable_names: Names,
    /// What separates the two, oldest first.
    unsynced_names: Vec<NameChange>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            operations: 0,
            cut_after: None,
            is_off: false,
            syncs_until_failure: None,
            capacity_bytes: CAPACITY_BYTES,
            next_file: 0,
            files: BTreeMap::new(),
            names: Names::new(),
            durable_names: Names::new(),
            unsynced_names: Vec::new(),
        }
    }
}

impl State {
    /// Counts an operation, or cuts the power in it.
    fn begin(&mut self) -> io::Result<()> {
        if self.cut_after.is_some_and(|count| self.operations >= count) {
            self.is_off = true;
            return Err(power_off());
        }
        self.operations += 1;
        Ok(())
    }

    /// A time that moves by one second per operation.
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.operations)
    }

    fn target(&self, path: &Path) -> Option<Target> {
        if is_root(path) { Some(Target::Dir) } else { self.names.get(path).copied() }
    }

    fn file_at(&self, path: &Path) -> io::Result<FileId> {
        match self.target(path) {
            Some(Target::File(id)) => Ok(id),
            Some(Target::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file_mut(&mut self, id: FileId) -> io::Result<&mut SimFile> {
        self.files.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn check_dir(&self, dir: &Path) -> io::Result<()> {
        match self.target(dir) {
            Some(Target::Dir) => Ok(()),
            Some(Target::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A new name can be made here.
    fn check_free(&self, path: &Path) -> io::Result<()> {
        if self.target(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        path.parent().map_or(Ok(()), |parent| self.check_dir(parent))
    }

    fn check_room(&mut self, id: FileId, len: usize) -> io::Result<()> {
        let free = self.free_bytes();
        let more = len.saturating_sub(self.file_mut(id)?.contents.len());
        if to_u64(more) > free { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn free_bytes(&self) -> u64 {
        let named = |id: &FileId| self.names.values().any(|target| *target == Target::File(*id));
        let used = self.files.iter().filter(|(id, _)| named(id));
        let used: u64 = used.map(|(_, file)| to_u64(file.contents.len())).sum();
        self.capacity_bytes.saturating_sub(used)
    }

    fn entry(&self, path: &Path) -> io::Result<DiskEntry> {
        let target = self.target(path).ok_or(io::ErrorKind::NotFound)?;
        let file = match target {
            Target::Dir => None,
            Target::File(id) => self.files.get(&id),
        };
        Ok(DiskEntry {
            path: path.to_path_buf(),
            is_dir: target == Target::Dir,
            len_bytes: file.map_or(0, |file| to_u64(file.contents.len())),
            modified: file.map_or(SystemTime::UNIX_EPOCH, |file| file.modified),
        })
    }

    fn change_names(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.unsynced_names.push(change);
    }

    fn sync_names(&mut self, dir: &Path) {
        for change in &mut self.unsynced_names {
            let is_here = |path: &Path| path.parent() == Some(dir);
            let (here, elsewhere) =
                std::mem::take(change).into_iter().partition(|(path, _)| is_here(path));
            apply(&mut self.durable_names, &here);
            *change = elsewhere;
        }
        self.unsynced_names.retain(|change| !change.is_empty());
    }

    fn surviving_names(&self, survival: Survival, random: &mut Random) -> Names {
        let mut found = match survival {
            Survival::Keep => self.names.clone(),
            Survival::Lose | Survival::Mixed(_) => self.durable_names.clone(),
        };
        if matches!(survival, Survival::Mixed(_)) {
            for change in &self.unsynced_names {
                if random.below(2) == 1 {
                    apply(&mut found, change);
                }
            }
        }
        // What is in a directory that was lost is lost with it.
        let mut reachable = Names::new();
        for (path, target) in found {
            let parent = path.parent().unwrap_or(Path::new(""));
            if is_root(parent) || reachable.get(parent) == Some(&Target::Dir) {
                reachable.insert(path, target);
            }
        }
        reachable
    }
}

#[derive(Clone, Debug)]
struct SimFile {
    /// As every running process sees them.
    contents: Vec<u8>,
    /// As they are certain to be found after a power cut.
    durable: Vec<u8>,
    /// What separates the two, oldest first.
    unsynced: Vec<Write>,
    modified: SystemTime,
}

impl Default for SimFile {
    fn default() -> Self {
        Self {
            contents: Vec::new(),
            durable: Vec::new(),
            unsynced: Vec::new(),
            modified: SystemTime::UNIX_EPOCH,
        }
    }
}

/// Bytes at an offset, and the length of the file after them. An allocation has no bytes.
#[derive(Clone, Debug)]
struct Write {
    offset: usize,
    bytes: Vec<u8>,
    len_after: usize,
    /// Whether the next sync will write it: false once a sync has failed.
    is_dirty: bool,
}

impl Write {
    fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes.len())
    }

    /// The sectors that it touches, as byte ranges.
    fn sectors(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let first = self.offset / SECTOR_BYTES;
        let after_last =
            if self.bytes.is_empty() { first } else { self.end().div_ceil(SECTOR_BYTES) };
        (first..after_last).map(|sector| (sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES))
    }
}

impl SimFile {
    fn write(&mut self, bytes: &[u8], offset: usize, modified: SystemTime) {
        let end = offset.saturating_add(bytes.len());
        if !bytes.is_empty() && end > self.contents.len() {
            extend_to(&mut self.contents, end);
        }
        copy_at(&mut self.contents, offset, bytes);
        self.modified = modified;
        self.push(offset, bytes.to_vec());
    }

    fn grow(&mut self, len: usize) {
        if len > self.contents.len() {
            extend_to(&mut self.contents, len);
            self.push(0, Vec::new());
        }
    }

    fn push(&mut self, offset: usize, bytes: Vec<u8>) {
        let len_after = self.contents.len();
        self.unsynced.push(Write { offset, bytes, len_after, is_dirty: true });
    }

    fn sync(&mut self) {
        extend_to(&mut self.durable, self.contents.len());
        let writes = std::mem::take(&mut self.unsynced);
        for (from, to) in writes.iter().filter(|write| write.is_dirty).flat_map(Write::sectors) {
            let to = to.min(self.contents.len());
            copy_at(&mut self.durable, from, self.contents.get(from..to).unwrap_or_default());
        }
    }

    fn forget_dirt(&mut self) {
        for write in &mut self.unsynced {
            write.is_dirty = false;
        }
    }

    fn without_writes(&self) -> Self {
        Self { modified: self.modified, ..Self::default() }
    }

    fn surviving(&self, survival: Survival, random: &mut Random) -> Vec<u8> {
        match survival {
            Survival::Lose => self.durable.clone(),
            Survival::Keep => self.contents.clone(),
            Survival::Mixed(_) => self.mixed(random),
        }
    }

    fn mixed(&self, random: &mut Random) -> Vec<u8> {
        let mut lengths = vec![self.durable.len()];
        let mut sectors: BTreeMap<(usize, usize), Vec<&Write>> = BTreeMap::new();
        for write in &self.unsynced {
            lengths.push(write.len_after);
            for sector in write.sectors() {
                sectors.entry(sector).or_default().push(write);
            }
        }
        let mut found = self.durable.clone();
        extend_to(&mut found, self.contents.len());
        for ((from, to), writes) in sectors {
            let kept = random.below(writes.len() + 1);
            for write in writes.into_iter().take(kept) {
                let (from, to) = (from.max(write.offset), to.min(write.end()));
                let bytes = write.bytes.get(from - write.offset..to.saturating_sub(write.offset));
                copy_at(&mut found, from, bytes.unwrap_or_default());
            }
        }
        let length = lengths.get(random.below(lengths.len())).copied().unwrap_or_default();
        found.truncate(length);
        found
    }
}

/// `SplitMix64` (Steele, Lea, Flood, 2014): small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = to_u64(bound).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
}

fn apply(names: &mut Names, change: &NameChange) {
    for (path, target) in change {
        match target {
            Some(target) => names.insert(path.clone(), *target),
            None => names.remove(path),
        };
    }
}

/// Makes `contents` at least `len` long. Not `resize`: without optimization that goes byte by byte,
/// and this is what a test of thousands of disks does most.
fn extend_to(contents: &mut Vec<u8>, len: usize) {
    contents.extend_from_slice(&vec![0; len.saturating_sub(contents.len())]);
}

/// Copies `bytes` into `contents` where they fit.
fn copy_at(contents: &mut [u8], offset: usize, bytes: &[u8]) {
    let end = offset.saturating_add(bytes.len());
    if let Some(place) = contents.get_mut(offset..end) {
        place.copy_from_slice(bytes);
    }
}

/// One spelling per path: without `.` and doubled slashes.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.parent().is_none()
}

fn power_off() -> io::Error {
    io::Error::other("simulated power cut")
}

fn to_usize(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
