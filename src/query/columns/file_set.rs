//! The files of one project: who is in which, who has changed since then and for how long, and which of
//! them is most worth to be made.
//!
//! # Why nothing is missed
//!
//! A file_set watches its project from before the first chunk is read. A number is taken from those that
//! have changed only under the lock under which the view is taken that its chunk is read from, and until
//! the chunk is there it stays among those that are asked for. What is on disk at the start is taken only
//! if the store is as it was at the clean end before.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bitmap::Bitmap;
use crate::identity::change_feed::ChangeFeed;
use crate::identity::store::Identities;
use crate::identity::view::View;
use crate::query::columns::chunk::Chunk;
use crate::query::columns::file_sets::FileLimits;
use crate::query::columns::record::ChunkRecord;
use crate::query::columns::record::ProjectRecord;

/// If more than one person in this many has changed, a chunk is worth to be made anew.
const RENEWED_SHARE: usize = 32;

/// Time until something is tried again that failed, if that is less than chunks may be stale.
const RETRY: Duration = Duration::from_secs(60);

/// See the head of this file.
#[derive(Debug)]
pub(super) struct FileSet {
    /// By their numbers, the first from 1, each up to the next.
    chunks: Vec<Kept>,
    /// Persons who changed since their chunk was read.
    changed: Bitmap,
    /// The same of chunks that are being made.
    renewing: Bitmap,
    watch: ChangeFeed,
    /// Bytes by which the files were to grow last, if there was no room for them.
    refused: u64,
    /// When a chunk could not be made.
    failed_at: Option<UnixMicros>,
}

#[derive(Debug)]
struct Kept {
    chunk: Arc<Chunk>,
    /// Since when it has had, as far as is known, what is not so any more.
    stale_since: Option<UnixMicros>,
}

/// Why a chunk is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// For so long it has had what was changed or deleted.
    Stale(Duration),
    /// So many persons are in none.
    Missing(u64),
    /// Of so many of 1024 persons the rows have to be read because they have changed.
    Changed(usize),
}

/// Something to do: chunks of these persons in the place of those that there are.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) need: Need,
    pub(super) numbers: Range<i64>,
    /// Places of the chunks that are replaced.
    pub(super) replaced: Range<usize>,
}

impl FileSet {
    /// Nothing yet, watched from now on.
    pub(super) fn new(identities: &Identities, project: ProjectId) -> Self {
        let (watch, _) = identities.watch(project);
        Self::of(Vec::new(), Bitmap::default(), watch)
    }

    fn of(chunks: Vec<Kept>, changed: Bitmap, watch: ChangeFeed) -> Self {
        Self { chunks, changed, renewing: Bitmap::default(), watch, refused: 0, failed_at: None }
    }

    /// A file_set of before, if it is whole and the store is as it was.
    pub(super) fn found(
        directory: &Path,
        record: ProjectRecord,
        identities: &Identities,
    ) -> Option<Self> {
        let (watch, view) = identities.watch(ProjectId(record.project));
        if view.applied_sequence().ok()? != record.applied {
            return None;
        }
        let mut chunks: Vec<Kept> = Vec::new();
        for own in &record.chunks {
            if own.start != chunks.last().map_or(1, |kept| kept.chunk.numbers.end) {
                return None;
            }
            let stale_since = own.stale_since.map(UnixMicros);
            chunks.push(Kept { chunk: Arc::new(Chunk::find(directory, own)?), stale_since });
        }
        let mut changed = Bitmap::default();
        changed.extend(&record.changed);
        Some(Self::of(chunks, changed, watch))
    }

    /// What is to be known of it at the next start.
    pub(super) fn record(
        &mut self,
        project: ProjectId,
        asked: Vec<Box<str>>,
        now: UnixMicros,
    ) -> Result<ProjectRecord, IdentityError> {
        let applied = self.look(now)?.applied_sequence()?;
        let chunk = |kept: &Kept| ChunkRecord {
            stale_since: kept.stale_since.map(|since| since.0),
            ..kept.chunk.record()
        };
        let chunks = self.chunks.iter().map(chunk).collect();
        let changed = self.all_changed().words().to_vec();
        Ok(ProjectRecord { project: project.0, applied, chunks, changed, asked })
    }

    /// Takes note of what has changed up to a view of now.
    pub(super) fn look(&mut self, now: UnixMicros) -> Result<View, IdentityError> {
        let view = self.see()?;
        for kept in self.chunks.iter_mut().filter(|kept| kept.stale_since.is_none()) {
            let is_stale = self.changed.within(places(&kept.chunk.numbers)).next().is_some();
            kept.stale_since = is_stale.then_some(now);
        }
        Ok(view)
    }

    fn see(&mut self) -> Result<View, IdentityError> {
        let (view, changed) = self.watch.changes()?;
        changed.iter().for_each(|number| self.changed.insert(number));
        Ok(view)
    }

    fn all_changed(&self) -> Bitmap {
        let mut changed = self.changed.clone();
        self.renewing.iter().for_each(|number| changed.insert(number));
        changed
    }

    /// What might be done, one of each kind at most: of a project with so many persons, if files may grow
    /// by `room` bytes.
    pub(super) fn jobs(
        &self,
        persons: u64,
        room: u64,
        limits: &FileLimits,
        now: UnixMicros,
    ) -> Vec<Job> {
        let pause = RETRY.min(limits.stale_max / 4);
        if self.failed_at.is_some_and(|at| waited(at, now) < pause) {
            return Vec::new();
        }
        let growing = self.growing(persons, limits).filter(|_| room >= self.refused.max(1));
        [self.stalest(limits, now), growing, self.most_changed()].into_iter().flatten().collect()
    }

    fn renewed(&self, need: Need, at: usize) -> Option<Job> {
        let numbers = self.chunks.get(at)?.chunk.numbers.clone();
        Some(Job { need, numbers, replaced: at..at + 1 })
    }

    /// The chunk that has been stale for longest, if it is time to make it anew: the other half of the time
    /// that it may be stale is for the work.
    fn stalest(&self, limits: &FileLimits, now: UnixMicros) -> Option<Job> {
        let ages = self.chunks.iter().enumerate();
        let ages = ages.filter_map(|(at, kept)| Some((waited(kept.stale_since?, now), at)));
        let (age, at) = ages.max().filter(|(age, _)| *age >= limits.stale_max / 2)?;
        self.renewed(Need::Stale(age), at)
    }

    fn most_changed(&self) -> Option<Job> {
        let share = |chunk: &Chunk| {
            let changed = self.changed.within(places(&chunk.numbers)).count();
            changed.saturating_mul(1024) / chunk.persons.max(1)
        };
        let shares = self.chunks.iter().enumerate().map(|(at, kept)| (share(&kept.chunk), at));
        let (share, at) = shares.max().filter(|(share, _)| *share > 1024 / RENEWED_SHARE)?;
        self.renewed(Need::Changed(share), at)
    }

    /// A chunk of persons who have none, if they are as many as it is made for. If the last one has room
    /// it is made anew with them, once they are as many as it has: so files are few, and each person is
    /// written a few times.
    fn growing(&self, persons: u64, limits: &FileLimits) -> Option<Job> {
        let kept: usize = self.chunks.iter().map(|kept| kept.chunk.persons).sum();
        let missing = persons.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX));
        let full = u64::try_from(limits.chunk_persons).unwrap_or(u64::MAX);
        let least = if self.chunks.is_empty() { 1 } else { limits.persons_min.clamp(1, full) };
        let places = self.chunks.len();
        let (start, replaced, least) = match self.chunks.last().map(|kept| &kept.chunk) {
            Some(last) if !last.is_full => {
                let own = u64::try_from(last.persons).unwrap_or(u64::MAX);
                (last.numbers.start, places.saturating_sub(1)..places, least.max(own))
            }
            last => (last.map_or(1, |last| last.numbers.end), places..places, least),
        };
        let job = Job { need: Need::Missing(missing), numbers: start..i64::MAX, replaced };
        (missing >= least).then_some(job)
    }

    /// Begins to make chunks of some persons from the view of [`FileSet::look`].
    pub(super) fn begin(&mut self, numbers: &Range<i64>) {
        let taken: Vec<usize> = self.changed.within(places(numbers)).collect();
        for number in taken {
            self.changed.remove(number);
            self.renewing.insert(number);
        }
    }

    /// Goes back to before [`FileSet::begin`].
    pub(super) fn give_up(&mut self) {
        self.changed = self.all_changed();
        self.renewing = Bitmap::default();
    }

    /// Chunks could not be made: it is not tried again at once. One that has been stale for too long goes
    /// without another in its place, and with it all behind it.
    pub(super) fn fail(&mut self, job: &Job, limits: &FileLimits, now: UnixMicros) {
        self.give_up();
        self.failed_at = Some(now);
        if matches!(job.need, Need::Stale(age) if age >= limits.stale_max) {
            self.truncate(job.replaced.start);
        }
    }

    /// The files may not grow by so many bytes.
    pub(super) fn refuse(&mut self, bytes: u64) {
        self.give_up();
        self.refused = bytes;
    }

    /// Ends what [`FileSet::begin`] began.
    pub(super) fn replace(&mut self, replaced: Range<usize>, made: Vec<Chunk>) {
        self.renewing = Bitmap::default();
        self.failed_at = None;
        let made = made.into_iter().map(|chunk| Kept { chunk: Arc::new(chunk), stale_since: None });
        self.chunks.splice(replaced, made).for_each(|kept| kept.chunk.replace());
    }

    /// Leaves so many chunks.
    pub(super) fn truncate(&mut self, chunks: usize) {
        let chunks = chunks.min(self.chunks.len());
        self.chunks.drain(chunks..).for_each(|kept| kept.chunk.replace());
    }

    /// Leaves all but the last chunk, for which there is no room.
    pub(super) fn shrink(&mut self) {
        self.refused = self.chunks.last().map_or(0, |kept| kept.chunk.bytes);
        self.truncate(self.chunks.len().saturating_sub(1));
    }

    /// Bytes of files and the persons in them.
    pub(super) fn size(&self, places: Range<usize>) -> (u64, usize) {
        let chunks = self.chunks.get(places).unwrap_or_default().iter().map(|kept| &kept.chunk);
        let add = |(bytes, persons): (u64, usize), chunk: &Arc<Chunk>| {
            (bytes.saturating_add(chunk.bytes), persons.saturating_add(chunk.persons))
        };
        chunks.fold((0, 0), add)
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.size(0..self.chunks.len()).0
    }

    /// All that there is.
    pub(super) fn chunks(&self) -> impl ExactSizeIterator<Item = &Arc<Chunk>> {
        self.chunks.iter().map(|kept| &kept.chunk)
    }

    /// The chunks, and a view from which on somebody else watches.
    pub(super) fn stock(
        &mut self,
        identities: &Identities,
        project: ProjectId,
    ) -> Result<Stock, IdentityError> {
        let (watch, view) = identities.watch(project);
        // Of a view that is later, so that nothing is missing of what the other one has.
        drop(self.see()?);
        let piece = |chunk: &Arc<Chunk>| Piece {
            numbers: chunk.numbers.clone(),
            chunk: Some(Arc::clone(chunk)),
        };
        let pieces = self.chunks().map(piece).collect();
        Ok(Stock { watch, view, pieces, changed: self.all_changed() })
    }
}

/// Some numbers, and the chunk that has their persons.
#[derive(Clone, Debug)]
pub(in crate::query) struct Piece {
    pub(in crate::query) numbers: Range<i64>,
    pub(super) chunk: Option<Arc<Chunk>>,
}

/// What there is of a project as of one view.
pub(super) struct Stock {
    /// Begins at the view.
    pub(super) watch: ChangeFeed,
    pub(super) view: View,
    /// Chunks from the first number on.
    pub(super) pieces: Vec<Piece>,
    /// Persons in chunks who have changed.
    pub(super) changed: Bitmap,
}

/// What there is without any chunk.
pub(super) fn bare(identities: &Identities, project: ProjectId) -> Stock {
    let (watch, view) = identities.watch(project);
    Stock { watch, view, pieces: Vec::new(), changed: Bitmap::default() }
}

/// Time since `since`. If the clock was set back it is not known: longer than any.
fn waited(since: UnixMicros, now: UnixMicros) -> Duration {
    if now < since { Duration::MAX } else { now.since(since) }
}

/// Numbers as places in a set.
pub(super) fn places(numbers: &Range<i64>) -> Range<usize> {
    let place = |number: i64| usize::try_from(number).unwrap_or(0);
    place(numbers.start)..place(numbers.end)
}
