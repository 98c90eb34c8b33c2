//! Who is in which file of a table of persons, and who has changed since: [`Pieces`].
//!
//! # Why nothing is missed
//!
//! The change feed begins before the first file is trusted. A change is taken out of the set only under the lock
//! under which the view is taken that its file is written from, and until that file is committed it stays among
//! those that readers ask for. A reader takes its own view first and the changes after it, so it has at least
//! those of its view. Files of an earlier process are trusted if the table says that all of them were as of
//! the sequence at which the store is; any other file once its rows were compared with those of the store.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use parking_lot::Mutex;

use crate::kernel::ranges::ranges;
use crate::persons::person_table::schema::TableOf;
use crate::persons::person_table::span::{ALL, Span, Trust, spans};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::change_feed::ChangeFeed;
use weir_identity::person_set::{PersonKey, PersonSet};
use weir_identity::store::Identities;
use weir_identity::view::{Moment, View};
use weir_storage::delta::DataFile;
use weir_storage::derived::Derived;

/// If more persons than one for this many rows have changed, a file is worth to be written anew.
const RENEWED_SHARE: u64 = 64;

/// A file with fewer rows is written anew if anybody has changed.
const SMALL_ROWS: u64 = 1 << 14;

/// Words of changes that are remembered, about 50 MB. Beyond, files with changes are given up: readers take rows
/// until they are written anew.
const CHANGED_WORDS_MAX: usize = 1 << 20;

/// Numbers of a part at least, if persons who are in no file are cut into parts.
const CUT_NUMBERS_MIN: i64 = 1 << 10;

/// When files are written anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    /// The time that a file may be out of date if that is worth to be changed.
    pub(super) interval: Duration,
    /// The time that a file may be out of date whatever has changed.
    pub(super) overdue: Duration,
    /// The time after which no file has what was changed or deleted.
    pub(super) stale_max: Duration,
    /// Rows of a file.
    pub(super) rows_max: usize,
}

/// Why a span is to be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It is not known who has changed since its file was written.
    Unverified,
    /// For so long its file has had what was changed or deleted, and that is long enough.
    Overdue(Duration),
    /// Enough persons have changed; or it has no file, or one that says nothing or lacks columns.
    Changed,
}

/// Some spans to be worked on.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) need: Need,
    pub(super) range: Range<PersonKey>,
    /// The files that hold the persons of the range.
    pub(super) files: Vec<Arc<DataFile>>,
    pub(super) as_of: u64,
}

/// A part of a project's persons as one file has them.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// All persons of the project with these numbers.
    pub(crate) numbers: Range<i64>,
    /// Where they are; `None` if their rows have to be read.
    pub(crate) file: Option<Arc<DataFile>>,
}

impl Part {
    /// Its persons, who are of a project.
    pub(crate) fn places(&self, project: ProjectId) -> Range<PersonKey> {
        (project, self.numbers.start)..(project, self.numbers.end)
    }
}

/// What there is of a project as of one view.
pub(crate) struct Parts {
    /// The files, if there are any.
    pub(crate) store: Option<Arc<dyn ObjectStore>>,
    /// In the order of their numbers, all there can be.
    pub(crate) parts: Vec<Part>,
    /// Persons who are not as the files say.
    pub(crate) changed: PersonSet,
}

impl Parts {
    /// All persons of a project in the files of a table, if there is one, as of a view. Persons who are in no file are cut into
    /// `cuts` parts at most.
    pub(super) fn of(
        pieces: Option<&Pieces>,
        project: ProjectId,
        view: &View,
        cuts: usize,
    ) -> Result<Self, IdentityError> {
        let next = view.next_number()?;
        let all = match pieces {
            Some(pieces) => pieces.parts(project, view)?,
            None => Self {
                store: None,
                parts: vec![Part { numbers: 0..next, file: None }],
                changed: PersonSet::default(),
            },
        };
        let mut parts = Vec::new();
        for Part { numbers, file } in all.parts {
            let numbers = numbers.start..numbers.end.min(next).max(numbers.start);
            let most = usize::try_from((numbers.end - numbers.start) / CUT_NUMBERS_MIN + 1);
            match file {
                Some(_) => parts.push(Part { numbers, file }),
                None => parts.extend(
                    ranges(numbers, most.unwrap_or(cuts).min(cuts))
                        .into_iter()
                        .map(|numbers| Part { numbers, file: None }),
                ),
            }
        }
        Ok(Self { parts, ..all })
    }
}

/// See the head of this file.
pub(super) struct Pieces {
    kind: TableOf,
    state: Mutex<State>,
}

struct State {
    feed: ChangeFeed,
    /// The sequence and the state at which the feed began.
    began_at: (u64, Moment),
    /// Persons who changed since their file was written.
    changed: PersonSet,
    /// The same of the range that is being written.
    renewing: Option<(Range<PersonKey>, PersonSet)>,
    spans: Vec<Span>,
    store: Option<Arc<dyn ObjectStore>>,
    /// Columns that files are to have beside those of the table.
    derived: Derived,
    /// Since when; `None` before these were ever told.
    derived_at: Option<UnixMicros>,
}

impl State {
    /// Takes note of what has changed up to a view of now.
    fn see(&mut self) -> Result<View, IdentityError> {
        let (view, changed) = self.feed.changes()?;
        self.changed.insert_all(changed);
        if self.changed.words() > CHANGED_WORDS_MAX {
            self.give_up_changed();
        }
        Ok(view)
    }

    /// Forgets who has changed, and trusts no file of theirs any more.
    fn give_up_changed(&mut self) {
        let Self { changed, spans, renewing, .. } = self;
        for span in spans {
            let is_renewing = renewing.as_ref().is_some_and(|(range, _)| {
                range.start < span.range.end && span.range.start < range.end
            });
            if !is_renewing && !changed.take(&span.range).is_empty() {
                span.trust = Trust::Unusable;
            }
        }
        tracing::info!(
            "too many persons have changed to remember who: their files are written anew"
        );
    }

    /// Goes back to before what was begun, if anything was.
    fn put_back(&mut self) {
        if let Some((_, taken)) = self.renewing.take() {
            self.changed.insert_all(taken);
        }
    }

    fn all_changed(&self, range: &Range<PersonKey>) -> PersonSet {
        let sets = std::iter::once(&self.changed).chain(self.renewing.iter().map(|(_, set)| set));
        sets.flat_map(|set| set.within(range)).collect()
    }
}

impl Pieces {
    /// Watches from now on; there are no files yet.
    pub(super) fn new(kind: TableOf, identities: &Identities) -> Result<Self, IdentityError> {
        let (feed, view) = identities.watch(kind.watched());
        let state = State {
            feed,
            began_at: (view.applied_sequence()?, view.moment()?),
            changed: PersonSet::default(),
            renewing: None,
            spans: Vec::new(),
            store: None,
            derived: Derived::default(),
            derived_at: None,
        };
        Ok(Self { kind, state: Mutex::new(state) })
    }

    /// Takes over the live files of the table, which was opened. All of them were as of `current`, if the table says
    /// so; `as_of` is a sequence that none is later than whose name does not say its own.
    pub(super) fn adopt(
        &self,
        store: Arc<dyn ObjectStore>,
        files: &[Arc<DataFile>],
        current: Option<u64>,
        as_of: u64,
    ) {
        let mut state = self.state.lock();
        let is_first = state.store.replace(store).is_none();
        let before = std::mem::take(&mut state.spans);
        state.spans = spans(self.kind, files, before, as_of);
        let (began_at, moment) = state.began_at;
        if is_first && current == Some(began_at) {
            let unverified = state.spans.iter_mut().filter(|span| span.trust == Trust::Unverified);
            unverified.for_each(|span| (span.trust, span.moment) = (Trust::Known, moment));
        }
    }

    /// The columns that files are to have beside those of the table.
    pub(super) fn derived(&self) -> Derived {
        self.state.lock().derived.clone()
    }

    /// From now on files are to have these. What lacks those that are told first has done so since ever, so that a process that
    /// often starts anew gets to it; later, it is since columns were added.
    pub(super) fn derive(&self, derived: Derived, now: UnixMicros) {
        let mut state = self.state.lock();
        let is_more = !derived.are_in(&state.derived.tag());
        match state.derived_at {
            None => state.derived_at = Some(UnixMicros(i64::MIN)),
            Some(_) if is_more => state.derived_at = Some(now),
            Some(_) => {}
        }
        state.derived = derived;
    }

    /// Takes note of what has changed up to a view of now, and since when files are out of date.
    pub(super) fn look(&self, now: UnixMicros) -> Result<View, IdentityError> {
        let mut state = self.state.lock();
        let view = state.see()?;
        let State { spans, changed, .. } = &mut *state;
        for span in spans.iter_mut().filter(|span| span.stale_since.is_none()) {
            let is_stale = match span.trust {
                Trust::Known => changed.within(&span.range).next().is_some(),
                Trust::Unverified => false,
                Trust::Unusable => true,
            };
            span.stale_since = is_stale.then_some(now);
        }
        Ok(view)
    }

    /// What is most worth to be done, of files that the view may be compared with. That one lacks columns is a reason only if
    /// they are to be filled.
    pub(super) fn job(
        &self,
        applied: u64,
        now: UnixMicros,
        is_filling: bool,
        renewal: &Renewal,
    ) -> Option<Job> {
        let state = self.state.lock();
        let mut lacking = state.derived.lacking();
        let lacking_for = is_filling.then(|| state.lacking_for(now));
        let spans = state.spans.iter().enumerate();
        let ranked = spans.filter(|(_, span)| span.as_of <= applied).filter_map(|(at, span)| {
            let changed = state.changed.count(&span.range);
            let lacking_for = lacking_for.filter(|_| span.lacks(&mut lacking));
            let (rank, need) = rank(span, changed, lacking_for, now, renewal)?;
            Some((rank, at, need))
        });
        let (_, at, need) = ranked.max_by_key(|(rank, at, _)| (*rank, std::cmp::Reverse(*at)))?;
        Some(state.job_of(at, need, applied, renewal))
    }

    /// Anything that is not as of now, in files that are of a sequence before `until`; and what lacks columns, of persons from
    /// `fill_from` on.
    pub(super) fn rest(
        &self,
        applied: u64,
        until: u64,
        fill_from: Option<PersonKey>,
        renewal: &Renewal,
    ) -> Option<Job> {
        let state = self.state.lock();
        let mut lacking = state.derived.lacking();
        let is_stale = |span: &Span| {
            let has_changed = || state.changed.within(&span.range).next().is_some();
            span.as_of < until && (span.trust != Trust::Known || has_changed())
        };
        let mut is_due = |span: &Span| {
            let is_looked_at = fill_from.is_some_and(|from| from <= span.range.start);
            is_stale(span) || is_looked_at && span.lacks(&mut lacking)
        };
        let mut spans = state.spans.iter().enumerate();
        let (at, span) = spans.find(|(_, span)| span.as_of <= applied && is_due(span))?;
        let need = match span.trust {
            Trust::Unverified => Need::Unverified,
            Trust::Known | Trust::Unusable => Need::Changed,
        };
        Some(state.job_of(at, need, applied, renewal))
    }

    /// Whether every span is as of the view of `applied`.
    pub(super) fn is_current(&self, applied: u64) -> bool {
        let mut state = self.state.lock();
        let view = state.see();
        let is_at = view.and_then(|view| view.applied_sequence()).is_ok_and(|at| at == applied);
        let is_known = |span: &Span| span.trust == Trust::Known && span.as_of <= applied;
        is_at && state.changed.is_empty() && state.spans.iter().all(is_known)
    }

    /// Begins to write the persons of a range, or to compare them, from the view that this returns.
    pub(super) fn begin(&self, range: &Range<PersonKey>) -> Result<View, IdentityError> {
        let mut state = self.state.lock();
        let view = state.see()?;
        state.put_back();
        let taken = state.changed.take(range);
        state.renewing = Some((range.clone(), taken));
        Ok(view)
    }

    /// Goes back to before [`Pieces::begin`].
    pub(super) fn give_up(&self) {
        self.state.lock().put_back();
    }

    /// Ends what [`Pieces::begin`] began: the spans of `range` are these from now on. What is left of the range, of
    /// which there was no file, is still to be written.
    pub(super) fn finish(&self, range: &Range<PersonKey>, made: Vec<Span>) {
        let mut state = self.state.lock();
        let rest = made.last().map_or(range.start, |span| span.range.end)..range.end;
        let taken = state.renewing.take().map(|(_, taken)| taken).unwrap_or_default();
        let mut made = made;
        if rest.start < rest.end {
            let (files, trust, moment) = (Vec::new(), Trust::Unusable, Moment::default());
            let (range, stale_since) = (rest.clone(), Some(UnixMicros(i64::MIN)));
            made.push(Span { range, files, as_of: 0, trust, moment, stale_since });
            let left: PersonSet = taken.within(&rest).collect();
            state.changed.insert_all(left);
        }
        state.replace(range, made);
    }

    /// Ends what [`Pieces::begin`] began: nothing was written, but in the view, which is of `moment`, these persons are
    /// not as the files say, by assumption since `since`.
    pub(super) fn verified(
        &self,
        job: &Job,
        changed: PersonSet,
        moment: Moment,
        since: UnixMicros,
    ) {
        let mut state = self.state.lock();
        state.renewing = None;
        let stale_since = (!changed.is_empty()).then_some(since);
        state.changed.insert_all(changed);
        let (range, files, as_of) = (job.range.clone(), job.files.clone(), job.as_of);
        let span = Span { range, files, as_of, trust: Trust::Known, moment, stale_since };
        state.replace(&job.range, vec![span]);
    }

    /// No longer trusts a file, which cannot be read.
    pub(crate) fn distrust(&self, path: &str) {
        let mut state = self.state.lock();
        let has = |span: &&mut Span| span.files.iter().any(|file| file.path == path);
        if let Some(span) = state.spans.iter_mut().find(has) {
            span.trust = Trust::Unusable;
        }
    }

    /// Number of files that readers take.
    #[cfg(test)]
    pub(super) fn known_files(&self) -> usize {
        let state = self.state.lock();
        let known = state.spans.iter().filter(|span| span.trust == Trust::Known);
        known.map(|span| span.files.len()).sum()
    }

    /// The files of a project, and who has changed since up to a view that is not after this call.
    pub(super) fn parts(&self, project: ProjectId, view: &View) -> Result<Parts, IdentityError> {
        let moment = view.moment()?;
        let mut state = self.state.lock();
        // Of a view that is later, so that nothing is missing of what the other one has.
        drop(state.see()?);
        let own = (project, 0)..(project, i64::MAX);
        let mut parts: Vec<Part> = Vec::new();
        for span in state.spans.iter().filter(|span| span.range.start < own.end) {
            let (from, to) = (span.range.start.max(own.start), span.range.end.min(own.end));
            if from >= to {
                continue;
            }
            let numbers = if from.0 == project { from.1 } else { 0 }..if to.0 == project {
                to.1
            } else {
                i64::MAX
            };
            let is_known = span.trust == Trust::Known && span.moment <= moment;
            parts.push(Part { numbers, file: span.files.first().filter(|_| is_known).cloned() });
        }
        if parts.is_empty() {
            parts.push(Part { numbers: 0..i64::MAX, file: None });
        }
        Ok(Parts { store: state.store.clone(), parts, changed: state.all_changed(&own) })
    }
}

impl State {
    /// For how long files have lacked columns, if they do. If the clock was set back that is not known: longer than any.
    fn lacking_for(&self, now: UnixMicros) -> Duration {
        match self.derived_at {
            Some(since) if since <= now => now.since(since),
            Some(_) | None => Duration::MAX,
        }
    }

    /// The job of a span, with neighbours of which so little is left that all of them are half a file.
    fn job_of(&self, at: usize, need: Need, applied: u64, renewal: &Renewal) -> Job {
        let rows = |span: &Span| span.rows().saturating_add(self.changed.count(&span.range));
        let half = u64::try_from(renewal.rows_max / 2).unwrap_or(u64::MAX);
        let (mut first, mut last) = (at, at);
        if need != Need::Unverified {
            let mut all = self.spans.get(at).map_or(0, rows);
            let mut takes = |at: usize| {
                let span = self.spans.get(at)?;
                let is_known = span.trust == Trust::Known && span.as_of <= applied;
                let more = all.saturating_add(rows(span));
                (is_known && more <= half).then(|| all = more)
            };
            while takes(last.saturating_add(1)).is_some() {
                last += 1;
            }
            while first > 0 && takes(first - 1).is_some() {
                first -= 1;
            }
        }
        let spans = self.spans.get(first..=last).unwrap_or_default();
        let bounds = spans.first().zip(spans.last());
        let range = bounds.map(|(first, last)| first.range.start..last.range.end);
        let files = spans.iter().flat_map(|span| span.files.iter().cloned()).collect();
        let as_of = spans.iter().map(|span| span.as_of).max().unwrap_or(0);
        Job { need, range: range.unwrap_or(ALL), files, as_of }
    }

    /// Puts spans in the place of those of a range.
    fn replace(&mut self, range: &Range<PersonKey>, made: Vec<Span>) {
        let first = self.spans.partition_point(|span| span.range.start < range.start);
        let end = self.spans.partition_point(|span| span.range.start < range.end);
        self.spans.splice(first..end.max(first), made);
    }
}

/// How much a span is worth to be worked on, and why; `None` if it is not. Its files may be `lacking` columns for so long:
/// that makes nothing in them wrong.
fn rank(
    span: &Span,
    changed: u64,
    lacking: Option<Duration>,
    now: UnixMicros,
    renewal: &Renewal,
) -> Option<((u8, u128), Need)> {
    if span.trust == Trust::Unverified {
        return Some(((2, 0), Need::Unverified));
    }
    let age = span.age(now);
    if let Some(age) = age.filter(|age| *age >= renewal.overdue) {
        return Some(((1, age.as_nanos()), Need::Overdue(age)));
    }
    let rows = span.rows();
    let is_worth =
        span.trust == Trust::Unusable || rows <= SMALL_ROWS || changed >= rows / RENEWED_SHARE;
    let share = u128::from(changed).saturating_mul(1 << 20) / u128::from(rows.max(1));
    let is_due = is_worth && age.is_some_and(|age| age >= renewal.interval)
        || lacking.is_some_and(|age| age >= renewal.interval.min(renewal.overdue));
    let class = u8::from(lacking.is_some_and(|age| age >= renewal.overdue));
    is_due.then_some(((class, share), Need::Changed))
}
