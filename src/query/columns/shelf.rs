//! Columns of all properties on disk, so that a property that was never asked for need not be read from
//! the rows of everybody: for each project with many persons some [`Chunk`]s, one behind the other, and
//! which of their persons have changed since. They are made and renewed in the background.
//!
//! # Why nothing is missed
//!
//! A shelf watches its project from before the first chunk is read. A number is taken from those that
//! have changed only under the lock under which the view is taken that its chunk is read from, and until
//! the chunk is there it stays among those that are asked for. What is on disk at the start is taken only
//! if the store is as it was at the clean end before, and what says so is removed first.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use arrow::error::ArrowError;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::Serialize;
use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bits::Bits;
use crate::identity::store::Identities;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::identity::watch::Watch;
use crate::query::columns::chunk::Chunk;
use crate::query::columns::chunk::ChunkError;
use crate::query::columns::chunk::Draft;

/// Where chunks end: at so many persons, or bytes of their properties, whatever is reached first. A
/// project with fewer persons has none.
pub(super) const PERSONS: usize = 1 << 16;
const BYTES: usize = 32 << 20;

/// If more than one person in this many has changed, a chunk is worth to be made anew.
const RENEWED_SHARE: usize = 32;

/// The file that says what there was at a clean end.
const RECORD: &str = "record.json";

/// Why chunks could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShelfError {
    /// The files.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The store.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl From<ArrowError> for ShelfError {
    fn from(error: ArrowError) -> Self {
        Self::Chunk(error.into())
    }
}

/// What one step in the background did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was nothing to do.
    None,
    /// Persons got a chunk who had none.
    Grown,
    /// A chunk was made anew.
    Renewed,
}

/// The shelves of all projects, in a directory of their own.
#[derive(Debug)]
pub(super) struct Shelves {
    directory: PathBuf,
    persons: usize,
    shelves: Mutex<BTreeMap<ProjectId, Arc<Mutex<Shelf>>>>,
    /// One chunk is made at a time.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Shelf {
    /// By their numbers, the first from 1, each up to the next.
    chunks: Vec<Arc<Chunk>>,
    /// Persons who changed since their chunk was read.
    changed: Bits,
    /// The same of chunks that are being made.
    renewing: Bits,
    watch: Watch,
}

impl Shelf {
    /// All persons with smaller numbers are in chunks.
    fn next(&self) -> i64 {
        self.chunks.last().map_or(1, |chunk| chunk.numbers.end)
    }

    /// Takes note of what has changed up to a view of now.
    fn look(&mut self) -> Result<View, IdentityError> {
        let (view, changed) = self.watch.changes()?;
        changed.iter().for_each(|number| self.changed.insert(number));
        Ok(view)
    }

    /// Which persons should have a chunk next, and which chunks they have now.
    fn choose(&self, persons: u64, least: usize) -> Option<(Range<i64>, Range<usize>)> {
        let kept: usize = self.chunks.iter().map(|chunk| chunk.persons).sum();
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        if persons.saturating_sub(kept) >= u64::try_from(least).unwrap_or(u64::MAX) {
            return Some((self.next()..i64::MAX, self.chunks.len()..self.chunks.len()));
        }
        let share = |chunk: &Chunk| {
            let changed = self.changed.within(places(&chunk.numbers)).count();
            changed.saturating_mul(1024) / chunk.persons.max(1)
        };
        let shares = self.chunks.iter().enumerate().map(|(at, chunk)| (share(chunk), at));
        let (share, at) = shares.max()?;
        let chunk = self.chunks.get(at).filter(|_| share > 1024 / RENEWED_SHARE)?;
        Some((chunk.numbers.clone(), at..at + 1))
    }
}

/// Some numbers, and the chunk that has their persons.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) numbers: Range<i64>,
    pub(super) chunk: Option<Arc<Chunk>>,
}

/// What there is of a project as of one view.
pub(super) struct Stock {
    /// Begins at the view.
    pub(super) watch: Watch,
    pub(super) view: View,
    /// Chunks from the first number on.
    pub(super) pieces: Vec<Piece>,
    /// Persons in chunks who have changed.
    pub(super) changed: Bits,
}

/// What is left at a clean end.
#[derive(Default, Deserialize, Serialize)]
struct Record {
    projects: Vec<ProjectRecord>,
}

#[derive(Deserialize, Serialize)]
struct ProjectRecord {
    project: i64,
    /// The sequence of the store.
    applied: u64,
    chunks: Vec<ChunkRecord>,
    changed: Vec<u64>,
    /// Properties that were in memory.
    asked: Vec<Box<str>>,
}

#[derive(Deserialize, Serialize)]
struct ChunkRecord {
    file: String,
    start: i64,
    end: i64,
    persons: usize,
    has_others: bool,
}

/// The properties of a project that were asked for last.
pub(in crate::query) type Asked = Vec<(ProjectId, Vec<Box<str>>)>;

impl Shelves {
    /// What is left in a directory, which need not exist, with the properties that were in memory then.
    /// Chunks are for so many persons.
    pub(super) fn open(
        directory: PathBuf,
        persons: usize,
        identities: &Identities,
    ) -> io::Result<(Self, Asked)> {
        fs::create_dir_all(&directory)?;
        let path = directory.join(RECORD);
        let record: Record = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Record::default(),
            Err(error) => return Err(error),
        };
        if path.exists() {
            fs::remove_file(&path)?;
            fs::File::open(&directory)?.sync_all()?;
        }
        let (mut shelves, mut asked) = (BTreeMap::new(), Asked::new());
        for own in record.projects {
            let project = ProjectId(own.project);
            asked.push((project, own.asked.clone()));
            if let Some(shelf) = found(&directory, own, identities) {
                shelves.insert(project, Arc::new(Mutex::new(shelf)));
            }
        }
        let known: BTreeSet<PathBuf> = shelves
            .values()
            .flat_map(|shelf| shelf.lock().chunks.clone())
            .map(|chunk| chunk.path.clone())
            .collect();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if !known.contains(&path) {
                fs::remove_file(&path)?;
            }
        }
        let (shelves, turn) = (Mutex::new(shelves), Mutex::new(()));
        Ok((Self { directory, persons: persons.max(1), shelves, turn }, asked))
    }

    /// Notes what there is for the next start, when nothing changes any more. `asked` is in memory.
    pub(super) fn close(&self, asked: &BTreeMap<ProjectId, Vec<Box<str>>>) -> io::Result<()> {
        let mut record = Record::default();
        for (project, shelf) in &*self.shelves.lock() {
            let mut shelf = shelf.lock();
            let applied = shelf.look().and_then(|view| view.applied_sequence());
            let applied = applied.map_err(io::Error::other)?;
            let chunk = |chunk: &Arc<Chunk>| ChunkRecord {
                file: name(&chunk.path),
                start: chunk.numbers.start,
                end: chunk.numbers.end,
                persons: chunk.persons,
                has_others: chunk.has_others,
            };
            let mut changed = shelf.changed.clone();
            shelf.renewing.iter().for_each(|number| changed.insert(number));
            record.projects.push(ProjectRecord {
                project: project.0,
                applied,
                chunks: shelf.chunks.iter().map(chunk).collect(),
                changed: changed.words().to_vec(),
                asked: asked.get(project).cloned().unwrap_or_default(),
            });
        }
        let draft = self.directory.join("record.tmp");
        fs::write(&draft, serde_json::to_vec(&record)?)?;
        fs::File::open(&draft)?.sync_all()?;
        fs::rename(&draft, self.directory.join(RECORD))?;
        fs::File::open(&self.directory)?.sync_all()
    }

    /// The chunks of a project, and a view from which on somebody else watches.
    pub(super) fn stock(
        &self,
        identities: &Identities,
        project: ProjectId,
    ) -> Result<Stock, IdentityError> {
        let shelf = self.shelves.lock().get(&project).cloned();
        let Some(shelf) = shelf else { return Ok(bare(identities, project)) };
        let mut shelf = shelf.lock();
        let (watch, view) = identities.watch(project);
        // Of a view that is later, so that nothing is missing of what the other one has.
        drop(shelf.look()?);
        let piece = |chunk: &Arc<Chunk>| Piece {
            numbers: chunk.numbers.clone(),
            chunk: Some(Arc::clone(chunk)),
        };
        let pieces = shelf.chunks.iter().map(piece).collect();
        let mut changed = shelf.changed.clone();
        shelf.renewing.iter().for_each(|number| changed.insert(number));
        Ok(Stock { watch, view, pieces, changed })
    }

    /// Makes what is most worth to be made for a project: a chunk of persons who have none, or of such
    /// as have changed.
    pub(super) fn step(
        &self,
        identities: &Identities,
        project: ProjectId,
        stop: &AtomicBool,
    ) -> Result<Step, ShelfError> {
        let _turn = self.turn.lock();
        let shelf = self.shelves.lock().get(&project).cloned();
        let shelf = match shelf {
            Some(shelf) => shelf,
            None => {
                let least = u64::try_from(self.persons).unwrap_or(u64::MAX);
                if identities.person_count(project)? < least {
                    return Ok(Step::None);
                }
                let (watch, _) = identities.watch(project);
                let (changed, renewing) = (Bits::default(), Bits::default());
                let shelf = Shelf { chunks: Vec::new(), changed, renewing, watch };
                let shelf = Arc::new(Mutex::new(shelf));
                self.shelves.lock().insert(project, Arc::clone(&shelf));
                shelf
            }
        };
        let mut own = shelf.lock();
        let view = own.look()?;
        let chosen = own.choose(view.person_count(project)?, self.persons);
        let Some((numbers, replaced)) = chosen else { return Ok(Step::None) };
        let numbers = numbers.start..numbers.end.min(view.next_number()?);
        let taken: Vec<usize> = own.changed.within(places(&numbers)).collect();
        for number in taken {
            own.changed.remove(number);
            own.renewing.insert(number);
        }
        drop(own);
        let is_new = replaced.is_empty();
        let made = self.make((&view, project), numbers, is_new, stop);
        let mut own = shelf.lock();
        let renewing = std::mem::take(&mut own.renewing);
        let made = match made {
            Ok(made) if !made.is_empty() => made,
            other => {
                renewing.iter().for_each(|number| own.changed.insert(number));
                return other.map(|_| Step::None);
            }
        };
        let made = made.into_iter().map(Arc::new);
        own.chunks.splice(replaced, made).for_each(|chunk| chunk.replace());
        Ok(if is_new { Step::Grown } else { Step::Renewed })
    }

    /// Makes chunks of the persons with these numbers: one of the first of them if they are new, or of
    /// all. None if it is to stop.
    fn make(
        &self,
        (view, project): (&View, ProjectId),
        numbers: Range<i64>,
        is_new: bool,
        stop: &AtomicBool,
    ) -> Result<Vec<Chunk>, ShelfError> {
        let (mut made, mut draft, mut start) = (Vec::new(), Draft::default(), numbers.start);
        let mut failed = None;
        let path = || self.directory.join(format!("{}-{}.parquet", project.0, Uuid::now_v7()));
        let is_full = |draft: &Draft| draft.len() >= self.persons || draft.bytes() >= BYTES;
        view.scan_rows(project, numbers.clone(), |row| {
            let mut push = || -> Result<(), ShelfError> {
                if is_full(&draft) {
                    let end = draft.last().unwrap_or(start).saturating_add(1);
                    made.push(std::mem::take(&mut draft).write(path(), start..end)?);
                    start = end;
                }
                Ok(draft.push(row)?)
            };
            failed = push().err();
            let is_over = failed.is_some() || stop.load(Ordering::Relaxed);
            Ok(if is_over || is_new && is_full(&draft) {
                Flow::Break(())
            } else {
                Flow::Continue(())
            })
        })?;
        if failed.is_none() && !stop.load(Ordering::Relaxed) {
            let end = match draft.last() {
                Some(last) if is_new && is_full(&draft) => last.saturating_add(1),
                _ => numbers.end,
            };
            match draft.write(path(), start..end) {
                Ok(chunk) => made.push(chunk),
                Err(error) => failed = Some(error.into()),
            }
        }
        if failed.is_none() && !stop.load(Ordering::Relaxed) {
            return Ok(made);
        }
        made.iter().for_each(Chunk::replace);
        failed.map_or(Ok(Vec::new()), Err)
    }

    /// The number of chunks of a project.
    #[cfg(test)]
    pub(super) fn len(&self, project: ProjectId) -> usize {
        self.shelves.lock().get(&project).map_or(0, |shelf| shelf.lock().chunks.len())
    }
}

/// What there is without any chunk.
pub(super) fn bare(identities: &Identities, project: ProjectId) -> Stock {
    let (watch, view) = identities.watch(project);
    Stock { watch, view, pieces: Vec::new(), changed: Bits::default() }
}

/// A shelf of before, if it is whole and the store is as it was.
fn found(directory: &Path, record: ProjectRecord, identities: &Identities) -> Option<Shelf> {
    let (watch, view) = identities.watch(ProjectId(record.project));
    if view.applied_sequence().ok()? != record.applied {
        return None;
    }
    let mut chunks: Vec<Arc<Chunk>> = Vec::new();
    for own in record.chunks {
        if own.start != chunks.last().map_or(1, |chunk| chunk.numbers.end) {
            return None;
        }
        // A name, not a way to somewhere else.
        let file = Path::new(&own.file).file_name()?;
        let numbers = own.start..own.end;
        let chunk = Chunk::find(directory.join(file), numbers, own.persons, own.has_others)?;
        chunks.push(Arc::new(chunk));
    }
    let mut changed = Bits::default();
    changed.extend(&record.changed);
    Some(Shelf { chunks, changed, renewing: Bits::default(), watch })
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Numbers as places in a set.
pub(super) fn places(numbers: &Range<i64>) -> Range<usize> {
    let place = |number: i64| usize::try_from(number).unwrap_or(0);
    place(numbers.start)..place(numbers.end)
}
