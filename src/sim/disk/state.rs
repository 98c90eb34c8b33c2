//! State of the simulated disk: cached and durable names, files, injected faults, and the time of the power
//! cut. `contents` has the bytes of a file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::disk::contents::{Random, SimFile, to_u64};
use crate::disk::{CAPACITY_BYTES, Survival};
use weir_disk::DiskEntry;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(pub(super) u64);

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Dir,
    File(FileId),
}

/// A parent sorts before its children, because paths compare by component.
pub(super) type Names = BTreeMap<PathBuf, Target>;

/// One atomic change of names: the new target of each path, `None` for a removal.
pub(super) type NameChange = Vec<(PathBuf, Option<Target>)>;

pub(super) struct State {
    pub(super) operations: u64,
    pub(super) cut_after: Option<u64>,
    pub(super) is_off: bool,
    pub(super) syncs_until_failure: Option<u64>,
    /// Path of a file that cannot be opened.
    pub(super) unreadable: Option<PathBuf>,
    /// Number of files and directories that can still be opened; `None` for no limit.
    pub(super) opens_left: Option<u64>,
    /// Whether creating and renaming fail.
    pub(super) names_refused: bool,
    pub(super) capacity_bytes: u64,
    pub(super) next_file: u64,
    pub(super) files: BTreeMap<FileId, SimFile>,
    /// The cached names, which every process sees.
    pub(super) names: Names,
    /// The names that are certain to survive a power cut.
    pub(super) durable_names: Names,
    /// Name changes that are cached and not durable, oldest first.
    pub(super) unsynced_names: Vec<NameChange>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            operations: 0,
            cut_after: None,
            is_off: false,
            syncs_until_failure: None,
            unreadable: None,
            opens_left: None,
            names_refused: false,
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
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.cut_after.is_some_and(|count| self.operations >= count) {
            self.is_off = true;
            return Err(power_off());
        }
        self.operations += 1;
        Ok(())
    }

    /// A time that moves by one second per operation.
    pub(super) fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.operations)
    }

    pub(super) fn target(&self, path: &Path) -> Option<Target> {
        if is_root(path) { Some(Target::Dir) } else { self.names.get(path).copied() }
    }

    pub(super) fn file_at(&self, path: &Path) -> io::Result<FileId> {
        match self.target(path) {
            Some(Target::File(id)) => Ok(id),
            Some(Target::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file_mut(&mut self, id: FileId) -> io::Result<&mut SimFile> {
        self.files.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn check_dir(&self, dir: &Path) -> io::Result<()> {
        match self.target(dir) {
            Some(Target::Dir) => Ok(()),
            Some(Target::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Checks that names can be created.
    pub(super) fn check_names(&self) -> io::Result<()> {
        if self.names_refused { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }

    pub(super) fn check_free(&self, path: &Path) -> io::Result<()> {
        if self.target(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        path.parent().map_or(Ok(()), |parent| self.check_dir(parent))
    }

    pub(super) fn check_room(&mut self, id: FileId, len: usize) -> io::Result<()> {
        let free = self.free_bytes();
        let more = len.saturating_sub(self.file_mut(id)?.contents.len());
        if to_u64(more) > free { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Maximum length that a file can have with the free capacity.
    pub(super) fn room(&mut self, id: FileId) -> io::Result<usize> {
        let free = usize::try_from(self.free_bytes()).unwrap_or(usize::MAX);
        Ok(self.file_mut(id)?.contents.len().saturating_add(free))
    }

    pub(super) fn free_bytes(&self) -> u64 {
        let named = |id: &FileId| self.names.values().any(|target| *target == Target::File(*id));
        let used = self.files.iter().filter(|(id, _)| named(id));
        let used: u64 = used.map(|(_, file)| to_u64(file.contents.len())).sum();
        self.capacity_bytes.saturating_sub(used)
    }

    pub(super) fn entry(&self, path: &Path) -> io::Result<DiskEntry> {
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

    pub(super) fn change_names(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.unsynced_names.push(change);
    }

    pub(super) fn sync_names(&mut self, dir: &Path) {
        for change in &mut self.unsynced_names {
            let is_here = |path: &Path| path.parent() == Some(dir);
            let (here, elsewhere) =
                std::mem::take(change).into_iter().partition(|(path, _)| is_here(path));
            apply(&mut self.durable_names, &here);
            *change = elsewhere;
        }
        self.unsynced_names.retain(|change| !change.is_empty());
    }

    pub(super) fn surviving_names(&self, survival: Survival, random: &mut Random) -> Names {
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
        // The contents of a lost directory are lost with it.
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

fn apply(names: &mut Names, change: &NameChange) {
    for (path, target) in change {
        match target {
            Some(target) => names.insert(path.clone(), *target),
            None => names.remove(path),
        };
    }
}

fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.parent().is_none()
}

pub(super) fn power_off() -> io::Error {
    io::Error::other("simulated power cut")
}
