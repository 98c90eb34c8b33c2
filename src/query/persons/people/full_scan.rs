//! Questions that are about everybody: asked of columns in memory, or of files of columns (`files`), or of
//! all rows by several threads.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;

use crate::kernel::admission::Permit;
use crate::kernel::engine::Engine;
use crate::kernel::error::QueryError;
use crate::kernel::parts::given_up;
use crate::persons::columns::{Asked, Asker, Columns, Selection};
use crate::persons::people::search::{Search, Sought};
use crate::persons::people::{Found, Part, PersonsQuestion};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::IdentityError;
use weir_identity::row::Row;
use weir_identity::view::View;

/// Persons whose order in the list is found in memory, at most; beyond it the walk goes along the list,
/// which takes longer and needs no memory.
const REMEMBERED_MAX: usize = 300_000;

/// Properties of one question that may get columns.
pub(super) const COLUMNS_MAX: usize = 32;

/// How long a question waits for columns that others read. Rows can answer it too.
const PATIENCE: Duration = Duration::from_secs(1);

/// Persons in the order of lists, and how many there are in all.
pub(super) type First = BTreeSet<(Reverse<(UnixMicros, Uuid)>, i64)>;

impl Engine {
    /// The persons who answer, found by a look at everybody.
    pub(super) async fn find_everybody(
        &self,
        project: ProjectId,
        question: PersonsQuestion,
        part: Part,
    ) -> Result<Found, QueryError> {
        self.wait().await?;
        let (limit, clock) = (self.shared.settings.query_timeout, &self.shared.clock);
        let (question, now, started) =
            (Arc::new(question), self.present(project), clock.monotonic());
        let mut keys: Vec<Box<str>> = question.keys().into_iter().map(Into::into).collect();
        keys.truncate(COLUMNS_MAX);
        // Columns are read one after the other, so who waits for one need not keep others waiting.
        // If they take half of the time that a question has, rows get the other half.
        self.provide(project, keys, PATIENCE, limit / 2).await?;
        let left = limit.saturating_sub(clock.monotonic().saturating_sub(started));
        let permit = self.permit().await?;
        let found = self.look(project, question, now, part, permit);
        timeout(left, found).await.unwrap_or(Err(QueryError::Timeout(limit)))
    }

    /// The persons who answer, from columns if they can tell, or else from files of columns.
    async fn look(
        &self,
        project: ProjectId,
        question: Arc<PersonsQuestion>,
        now: Now,
        part: Part,
        permit: Permit,
    ) -> Result<Found, QueryError> {
        // The permit is of the threads, which may go on for some time when nobody waits any more.
        let permit = Arc::new(permit);
        let (asked, columns) = (Arc::clone(&question), Arc::clone(&self.shared.columns));
        let asking = Arc::clone(&permit);
        let found = self.on_a_thread(move |stop| {
            let _permit = asking;
            let inquiry = Inquiry { project, question: &asked, now, part };
            find_in_columns(&columns, inquiry, REMEMBERED_MAX, stop)
        });
        if let Some(found) = found.await? {
            return Ok(found);
        }
        match self.find_in_files(project, &question, now, part, &permit).await? {
            Some(found) => Ok(found),
            None => self.find_in_rows(project, question, now, part, permit).await,
        }
    }

    /// Reads columns that are missing, after at most `patience` of waiting for what others read, and
    /// `limit` in all. Whoever waits too long goes without, and what is being read is for the next one who
    /// asks.
    pub(crate) async fn provide(
        &self,
        project: ProjectId,
        keys: Vec<Box<str>>,
        patience: Duration,
        limit: Duration,
    ) -> Result<(), QueryError> {
        let waits = Arc::new(());
        let asker = Asker { waits: Arc::downgrade(&waits), patience };
        let (identities, runtime) = (self.identities().clone(), self.shared.runtime.clone());
        let columns = Arc::clone(&self.shared.columns);
        let reading = columns.provide(identities, runtime, project, keys, asker);
        let reading = self.shared.runtime.spawn(reading);
        match timeout(limit, reading).await {
            Ok(Ok(provided)) => provided,
            Ok(Err(error)) => Err(given_up(error)),
            Err(_) => Ok(()),
        }
    }

    /// The persons who answer, from all rows.
    async fn find_in_rows(
        &self,
        project: ProjectId,
        question: Arc<PersonsQuestion>,
        now: Now,
        part: Part,
        permit: Arc<Permit>,
    ) -> Result<Found, QueryError> {
        let wanted_max = part.offset.saturating_add(part.limit);
        let view = Arc::new(self.identities().view());
        let own = Arc::clone(&view);
        if wanted_max > REMEMBERED_MAX {
            let found = self.on_a_thread(move |stop| {
                let _permit = permit;
                let search = Search::new(&own, project, &question, now, stop)?;
                search.walk(part)
            });
            let (count, numbers) = found.await?;
            return Ok(Found { count, numbers, project, view });
        }
        let work = move |view: &View, numbers, stop: &AtomicBool| {
            let _permit = &permit;
            Search::new(view, project, &question, now, stop)?.scan(numbers, wanted_max)
        };
        let (count, numbers) = joined(self.view_in_parts(own, work).await?, part);
        Ok(Found { count, numbers, project, view })
    }
}

/// How many there are in all, and the numbers of those in `part`, of persons who were looked at in ranges
/// and of whose first enough were remembered.
pub(super) fn joined(ranges: Vec<(usize, First)>, part: Part) -> (usize, Vec<i64>) {
    let (mut count, mut first) = (0, First::new());
    for (own_count, own) in ranges {
        count += own_count;
        first.extend(own);
    }
    let numbers = first.into_iter().map(|(_, number)| number);
    (count, numbers.skip(part.offset).take(part.limit).collect())
}

/// A question about everybody, and which part of its answer is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inquiry<'q> {
    pub(super) project: ProjectId,
    pub(super) question: &'q PersonsQuestion,
    /// The present, for dates of its filters.
    pub(super) now: Now,
    pub(super) part: Part,
}

/// The persons who answer, if columns can tell; their order in the list is found in memory up to
/// `ordered_max`.
pub(super) fn find_in_columns(
    columns: &Columns,
    inquiry: Inquiry<'_>,
    ordered_max: usize,
    stop: &AtomicBool,
) -> Result<Option<Found>, IdentityError> {
    let Inquiry { project, question, now, part } = inquiry;
    let found = columns.ask(project, stop, |rows, view, asked_at| {
        let search = Search::new(&view, project, question, now, stop)?;
        let newest = search.newest();
        let selection =
            Selection { rows, view: &view, project, asked_at, now, newest, ordered_max, stop };
        let decide = |number| search.is_number_kept(number);
        let Some(chosen) = selection.choose(&asked(question, search.sought.as_ref()), decide)?
        else {
            return Ok(None);
        };
        let (count, numbers) = (chosen.count(), selection.listed(&chosen, part)?);
        drop(search);
        Ok(Some((count, numbers, view)))
    });
    let found = found?.flatten();
    Ok(found.map(|(count, numbers, view)| Found { count, numbers, project, view: Arc::new(view) }))
}

/// The question as columns are asked it, and what its search finds.
pub(super) fn asked<'q>(question: &'q PersonsQuestion, sought: Option<&'q Sought>) -> Asked<'q> {
    let mut all = Vec::new();
    all.extend(question.cohort.map(|_| Asked::Unknown));
    all.extend(question.changed_since.map(|_| Asked::Unknown));
    all.extend(sought.map(|sought| {
        Asked::Any(vec![Asked::EmailPart(&sought.email), Asked::Numbers(&sought.numbers)])
    }));
    all.extend(question.properties.iter().map(asked_tree));
    Asked::All(all)
}

fn asked_tree(tree: &Tree) -> Asked<'_> {
    match tree {
        Tree::All(trees) => Asked::All(trees.iter().map(asked_tree).collect()),
        Tree::Any(trees) if trees.is_empty() => Asked::Constant(true),
        Tree::Any(trees) => Asked::Any(trees.iter().map(asked_tree).collect()),
        Tree::Leaf { filter, negated: false } => asked_filter(filter),
        Tree::Leaf { filter, negated: true } => Asked::Not(Box::new(asked_filter(filter))),
    }
}

fn asked_filter(filter: &Filter) -> Asked<'_> {
    match filter {
        Filter::Property { scope: Scope::Person, predicate } => Asked::Property(predicate),
        Filter::Property { scope: Scope::PersonMetadata, predicate } => match &*predicate.key {
            "created_at" => Asked::Created(predicate),
            "is_identified" => Asked::Identified(predicate),
            _ => Asked::Unknown,
        },
        Filter::Property { .. } | Filter::Flag { .. } => Asked::Constant(false),
        Filter::Cohort { .. } => Asked::Unknown,
    }
}

impl Search<'_> {
    /// Looks at the persons with these numbers in the order of their rows, and remembers the first of
    /// the list; how many answer in all.
    pub(super) fn scan(
        &self,
        numbers: Range<i64>,
        wanted_max: usize,
    ) -> Result<(usize, First), IdentityError> {
        let (mut count, mut first) = (0, First::new());
        self.each(numbers, |row| {
            count += 1;
            first.insert((Reverse((row.created_at, row.uuid)), row.number));
            if first.len() > wanted_max {
                first.pop_last();
            }
        })?;
        Ok((count, first))
    }

    /// Shows those of the persons with these numbers who answer, in the order of their rows.
    pub(super) fn each(
        &self,
        numbers: Range<i64>,
        mut visit: impl FnMut(&Row<'_>),
    ) -> Result<(), IdentityError> {
        let newest = self.newest();
        self.view.scan_rows(self.project, numbers, |row| {
            if row.created_at <= newest && self.is_row_kept(row)? {
                visit(row);
            }
            Ok(self.flow(true))
        })
    }

    /// Looks at all persons in the order of the list.
    pub(super) fn walk(&self, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        let mut count: usize = 0;
        let mut numbers = Vec::new();
        let mut failed = None;
        self.view.scan_listed(self.project, self.newest(), |number| {
            match self.view.person_by_number(self.project, number) {
                Ok(Some(person)) if self.is_kept(&person) => {
                    if count >= part.offset && numbers.len() < part.limit {
                        numbers.push(number);
                    }
                    count += 1;
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            self.flow(failed.is_none())
        })?;
        failed.map_or(Ok((count, numbers)), Err)
    }
}
