//! Columns of all properties on disk, so that a property that was never asked for need not be read from
//! the rows of everybody: for each project with many persons some [`Chunk`]s, one behind the other
//! ([`FileSet`]). They are made and renewed in the background, one at a time: persons who have none get
//! one, and none has for longer than a setting what was changed or deleted.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::error::ArrowError;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::store::Identities;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::query::columns::chunk::Chunk;
use crate::query::columns::chunk::ChunkError;
use crate::query::columns::chunk::Draft;
use crate::query::columns::file_set;
use crate::query::columns::file_set::FileSet;
use crate::query::columns::file_set::Job;
use crate::query::columns::file_set::Need;
use crate::query::columns::file_set::Stock;
use crate::query::columns::record::Record;

/// Where chunks end: at so many persons, or bytes of their properties, whatever is reached first.
pub(in crate::query) const PERSONS: usize = 1 << 16;
const BYTES: usize = 32 << 20;

/// How many and how old files may be.
#[derive(Clone, Copy, Debug)]
pub(in crate::query) struct FileLimits {
    /// Bytes of all files, but for those that are being replaced.
    pub(in crate::query) bytes_max: u64,
    /// A project with fewer persons has none.
    pub(in crate::query) persons_min: u64,
    /// Persons of a file.
    pub(in crate::query) chunk_persons: usize,
    /// How long a file may have what was changed or deleted.
    pub(in crate::query) stale_max: Duration,
}

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// There was nothing to do.
    #[default]
    None,
    /// Persons got a chunk who had none.
    Grown,
    /// A chunk was made anew.
    Renewed,
    /// The same of one that has waited for it for long: there is more to do than is done.
    Late,
}

/// The properties of a project that were asked for last.
pub(in crate::query) type Asked = Vec<(ProjectId, Vec<Box<str>>)>;

/// The file_sets of all projects, in a directory of their own.
#[derive(Debug)]
pub(super) struct FileSets {
    directory: PathBuf,
    limits: FileLimits,
    file_sets: Mutex<BTreeMap<ProjectId, Arc<Mutex<FileSet>>>>,
    /// One chunk is made at a time; what the last step was.
    turn: Mutex<Step>,
}

/// A project and what is to be done for it.
type Task = (ProjectId, Arc<Mutex<FileSet>>, Job);

impl FileSets {
    /// What is left in a directory, which need not exist, with the properties that were in memory then.
    /// Whatever else is there goes, such as what a crash has left.
    pub(super) fn open(
        directory: PathBuf,
        limits: FileLimits,
        identities: &Identities,
    ) -> io::Result<(Self, Asked)> {
        fs::create_dir_all(&directory)?;
        let record = Record::take(&directory).unwrap_or_else(|error| {
            tracing::warn!(%error, "columns of persons are made anew");
            Record::default()
        });
        let (mut file_sets, mut asked) = (BTreeMap::new(), Asked::new());
        for mut own in record.projects {
            let project = ProjectId(own.project);
            asked.push((project, std::mem::take(&mut own.asked)));
            let file_set = FileSet::found(&directory, own, identities);
            if let Some(file_set) = file_set.filter(|_| limits.bytes_max > 0) {
                file_sets.insert(project, Arc::new(Mutex::new(file_set)));
            }
        }
        let paths = |file_set: &Arc<Mutex<FileSet>>| -> Vec<PathBuf> {
            file_set.lock().chunks().map(|chunk| chunk.path.clone()).collect()
        };
        let known: BTreeSet<PathBuf> = file_sets.values().flat_map(paths).collect();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if !known.contains(&path)
                && let Err(error) = fs::remove_file(&path)
            {
                let path = path.display().to_string();
                tracing::warn!(%error, path, "cannot remove what is no column of persons");
            }
        }
        let (file_sets, turn) = (Mutex::new(file_sets), Mutex::default());
        Ok((Self { directory, limits, file_sets, turn }, asked))
    }

    /// Notes what there is for the next start, when nothing changes any more. `asked` is in memory.
    pub(super) fn close(
        &self,
        asked: &BTreeMap<ProjectId, Vec<Box<str>>>,
        now: UnixMicros,
    ) -> io::Result<()> {
        let mut record = Record::default();
        for (project, file_set) in &*self.file_sets.lock() {
            let asked = asked.get(project).cloned().unwrap_or_default();
            let own = file_set.lock().record(*project, asked, now);
            record.projects.push(own.map_err(io::Error::other)?);
        }
        record.put(&self.directory)
    }

    /// The chunks of a project, and a view from which on somebody else watches.
    pub(super) fn stock(
        &self,
        identities: &Identities,
        project: ProjectId,
    ) -> Result<Stock, IdentityError> {
        let file_set = self.file_sets.lock().get(&project).cloned();
        match file_set {
            Some(file_set) => file_set.lock().stock(identities, project),
            None => Ok(file_set::bare(identities, project)),
        }
    }

    /// Does what is most worth to be done for these projects, which are all there are: makes a chunk of
    /// persons who have none, or of such as have changed. Files of other projects go.
    pub(super) fn step(
        &self,
        identities: &Identities,
        projects: &[ProjectId],
        now: UnixMicros,
        stop: &AtomicBool,
    ) -> Result<Step, ShelfError> {
        if self.limits.bytes_max == 0 {
            return Ok(Step::None);
        }
        let mut last = self.turn.lock();
        let tasks = self.look(identities, projects, now)?;
        *last = match choose(tasks, *last) {
            Some(task) => self.carry_out(task, now, stop)?,
            None => Step::None,
        };
        Ok(*last)
    }

    /// Takes note of what has changed, lets go what is not to stay, and says what might be done.
    fn look(
        &self,
        identities: &Identities,
        projects: &[ProjectId],
        now: UnixMicros,
    ) -> Result<Vec<Task>, IdentityError> {
        let (view, mut large) = (identities.view(), BTreeMap::new());
        for project in projects {
            let persons = view.person_count(*project)?;
            if persons >= self.limits.persons_min.max(1) {
                large.insert(*project, persons);
            }
        }
        let mut file_sets = self.file_sets.lock();
        file_sets.retain(|project, file_set| {
            let stays = large.contains_key(project);
            if !stays {
                file_set.lock().truncate(0);
            }
            stays
        });
        let mut kept = Vec::new();
        for (project, persons) in large {
            let new = || Arc::new(Mutex::new(FileSet::new(identities, project)));
            let file_set = Arc::clone(file_sets.entry(project).or_insert_with(new));
            kept.push((project, persons, file_set));
        }
        drop(file_sets);
        self.trim();
        let room = self.limits.bytes_max.saturating_sub(self.bytes());
        let mut tasks = Vec::new();
        for (project, persons, file_set) in kept {
            let mut own = file_set.lock();
            drop(own.look(now)?);
            let jobs = own.jobs(persons, room, &self.limits, now);
            drop(own);
            tasks.extend(jobs.into_iter().map(|job| (project, Arc::clone(&file_set), job)));
        }
        Ok(tasks)
    }

    /// Bytes of all files, but for those that are being replaced.
    pub(super) fn bytes(&self) -> u64 {
        let file_sets = self.file_sets.lock().clone();
        file_sets.values().fold(0, |bytes, file_set| bytes.saturating_add(file_set.lock().bytes()))
    }

    /// Lets the last files of the largest projects go while all are too large.
    fn trim(&self) {
        while self.bytes() > self.limits.bytes_max {
            let file_sets = self.file_sets.lock().clone();
            let Some(largest) =
                file_sets.into_values().max_by_key(|file_set| file_set.lock().bytes())
            else {
                return;
            };
            largest.lock().shrink();
        }
    }

    fn carry_out(
        &self,
        (project, file_set, job): Task,
        now: UnixMicros,
        stop: &AtomicBool,
    ) -> Result<Step, ShelfError> {
        let mut own = file_set.lock();
        let view = own.look(now)?;
        let numbers = job.numbers.start..job.numbers.end.min(view.next_number()?);
        own.begin(&numbers);
        drop(own);
        let is_new = matches!(job.need, Need::Missing(_));
        let made = self.make((&view, project), numbers, is_new, stop);
        let bytes = self.bytes();
        let mut own = file_set.lock();
        let made = match made {
            Ok(made) if !made.is_empty() => made,
            Ok(_) => {
                own.give_up();
                return Ok(Step::None);
            }
            Err(error) => {
                own.fail(&job, &self.limits, now);
                return Err(error);
            }
        };
        let (bytes_before, persons_before) = own.size(job.replaced.clone());
        let bytes_after = made.iter().fold(0_u64, |sum, chunk| sum.saturating_add(chunk.bytes));
        let more = bytes_after.saturating_sub(bytes_before);
        if is_new && bytes.saturating_add(more) > self.limits.bytes_max {
            tracing::info!(project = project.0, more, "no room for more columns of persons");
            made.iter().for_each(Chunk::replace);
            own.refuse(more);
            return Ok(Step::None);
        }
        let is_more = made.iter().map(|chunk| chunk.persons).sum::<usize>() > persons_before;
        own.replace(job.replaced, made);
        drop(own);
        self.trim();
        Ok(match job.need {
            Need::Missing(_) if is_more => Step::Grown,
            // What is counted and what there is do not agree; nobody should try that all the time.
            Need::Missing(_) => Step::None,
            Need::Stale(age) if age >= self.limits.stale_max / 4 * 3 => Step::Late,
            Need::Stale(_) | Need::Changed(_) => Step::Renewed,
        })
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
        let is_full =
            |draft: &Draft| draft.len() >= self.limits.chunk_persons || draft.bytes() >= BYTES;
        let scanned = view.scan_rows(project, numbers.clone(), |row| {
            let mut push = || -> Result<(), ShelfError> {
                if is_full(&draft) {
                    let end = draft.last().unwrap_or(start).saturating_add(1);
                    made.push(std::mem::take(&mut draft).write(path(), start..end, true)?);
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
        });
        failed = failed.or(scanned.err().map(ShelfError::from));
        if failed.is_none() && !stop.load(Ordering::Relaxed) {
            let is_full = is_full(&draft);
            let end = match draft.last() {
                Some(last) if is_new && is_full => last.saturating_add(1),
                _ => numbers.end,
            };
            match draft.write(path(), start..end, is_full) {
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
        self.file_sets.lock().get(&project).map_or(0, |file_set| file_set.lock().chunks().len())
    }
}

/// What is to be done first: what has been stale for longest, but for every other step, so that there is
/// one for persons who have none even if there is always something stale.
fn choose(tasks: Vec<Task>, last: Step) -> Option<Task> {
    let is_their_turn = matches!(last, Step::Renewed | Step::Late);
    let rank = |task: &Task| match task.2.need {
        Need::Missing(persons) => (if is_their_turn { 2 } else { 1 }, u128::from(persons)),
        Need::Stale(age) => (if is_their_turn { 1 } else { 2 }, age.as_nanos()),
        Need::Changed(share) => (0, u128::try_from(share).unwrap_or(u128::MAX)),
    };
    tasks.into_iter().max_by_key(rank)
}

#[cfg(test)]
mod tests;
