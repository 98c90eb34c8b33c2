//! Lists that need a look at everybody: a plan over the persons table gives those who answer, and here the part of the
//! list that is wanted is found among them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{AsArray, BooleanBufferBuilder, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::{ident, lit};

use crate::filter::condition::{Pace, RowTest};
use crate::filter::matches::Subjects;
use crate::filter::person_filter::{condition, has_email_part, holds_for_row};
use crate::filter::tree::all;
use crate::guard::watched::Watched;
use crate::kernel::apart::spawned;
use crate::kernel::engine::Engine;
use crate::kernel::error::{QueryError, given_up};
use crate::persons::people::search::Sought;
use crate::persons::people::{FUTURE, FoundPersons, Part, PersonsQuestion};
use crate::persons::person_scan::PersonsProvider;
use crate::persons::tables::rows_of_persons;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::predicate::filter::{Filter, Membership};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_identity::view::{Flow, View};
use weir_storage::exact::ExactColumns;

/// Persons whose order in the list is found in memory, at most; beyond it the walk goes along the list,
/// which takes longer and needs no memory.
const REMEMBERED_MAX: usize = 300_000;

/// What a project's persons are asked as of.
pub(super) struct Present {
    pub(super) persons: PersonsProvider,
    pub(super) now: Now,
    /// Where memory of what is known of persons is taken from.
    pub(super) memory: Arc<dyn MemoryPool>,
}

impl Present {
    /// Who was created later is not listed.
    pub(super) fn newest(&self) -> UnixMicros {
        self.now.at.saturating_add(FUTURE)
    }

    /// The numbers and times of creation of those who answer. Reads what a search names from the store.
    pub(super) fn plan(&self, question: PersonsQuestion) -> Result<LogicalPlan, QueryError> {
        let PersonsProvider { view, project, .. } = &self.persons;
        let time = ScalarValue::TimestampMicrosecond(Some(self.newest().0), Some("UTC".into()));
        let mut conditions = vec![ident("created_at").lt_eq(lit(time))];
        if let Some(text) = question.search {
            let sought = Sought::new(view, *project, &text)?;
            let numbers = sought.numbers.iter().map(|number| lit(*number)).collect();
            let is_named = ident("number").in_list(numbers, false);
            conditions.push(has_email_part(sought.email).or(is_named));
        }
        if let Some(since) = question.changed_since {
            let test: Arc<RowTest> = Arc::new(move |_, row, _| Ok(row.changed_sequence >= since));
            conditions.push(holds_for_row(Pace::Steady, test));
        }
        let is_in = |id| Tree::Leaf {
            filter: Filter::Cohort { id, membership: Membership::In },
            negated: false,
        };
        let trees = question.properties.into_iter().chain(question.cohort.map(is_in)).collect();
        let subjects = Subjects {
            project: *project,
            view: Arc::clone(view),
            in_cohort: question.in_cohort,
            now: self.now,
            exact: ExactColumns::default(),
            memory: Arc::clone(&self.memory),
            find: None,
        };
        conditions.push(condition(Tree::All(trees), subjects));
        let rows = self.rows(all(conditions))?;
        Ok(rows.project([ident("number"), ident("created_at")])?.build()?)
    }

    /// The rows of those for whom a condition holds.
    fn rows(&self, condition: Expr) -> Result<LogicalPlanBuilder> {
        rows_of_persons(provider_as_source(Arc::new(self.persons.clone())))?.filter(condition)
    }
}

/// Those who answer, as far as they were shown.
pub(super) struct Listing {
    count: usize,
    /// Their numbers, a bit for each that there can be.
    all: BooleanBufferBuilder,
    /// The first of them, the oldest at the top.
    first: BinaryHeap<Reverse<(i64, i64)>>,
    /// How many of the first are remembered.
    first_max: usize,
    /// The newest time of those who were left out there.
    left_out: Option<i64>,
}

impl Listing {
    /// Nobody yet, of those with numbers before `next`. The order of this part is found in memory if it ends before
    /// `ordered_max`.
    pub(super) fn of(part: Part, ordered_max: usize, next: i64) -> Self {
        let (end, numbers) = (part.offset.saturating_add(part.limit), place(next));
        let mut all = BooleanBufferBuilder::new(numbers);
        all.append_n(numbers, false);
        let first_max = if end <= ordered_max { end } else { 0 };
        Self { count: 0, all, first: BinaryHeap::new(), first_max, left_out: None }
    }

    /// Adds rows of [`Present::plan`].
    pub(super) fn add(&mut self, rows: &RecordBatch) {
        let [numbers, times] = rows.columns() else { return };
        let numbers = numbers.as_primitive::<Int64Type>().values();
        let times = times.as_primitive::<TimestampMicrosecondType>().values();
        self.count = self.count.saturating_add(rows.num_rows());
        let mut oldest = self.oldest();
        for (number, time) in numbers.iter().zip(times.iter()) {
            if place(*number) < self.all.len() {
                self.all.set_bit(place(*number), true);
            }
            if oldest.is_some_and(|oldest| *time <= oldest) || self.first_max == 0 {
                self.left_out = self.left_out.max(Some(*time));
                continue;
            }
            self.first.push(Reverse((*time, *number)));
            if self.first.len() > self.first_max {
                let left_out = self.first.pop().map(|Reverse((time, _))| time);
                self.left_out = self.left_out.max(left_out);
            }
            oldest = self.oldest();
        }
    }

    /// The oldest of the first, if these are as many as are remembered.
    fn oldest(&self) -> Option<i64> {
        let Reverse((oldest, _)) = self.first.peek()?;
        (self.first.len() >= self.first_max).then_some(*oldest)
    }

    /// How many answer, and the numbers of a part of the list, of a view of which none is newer than `newest`. Of those with
    /// one time the list tells the order.
    pub(super) fn found(
        self,
        (view, project): (Arc<View>, ProjectId),
        newest: UnixMicros,
        part: Part,
        stop: &AtomicBool,
    ) -> Result<FoundPersons, IdentityError> {
        let end = part.offset.saturating_add(part.limit);
        let along = |newest, count| along(&view, project, newest, count, &self.all, stop);
        let (count, left_out) = (self.count, self.left_out);
        let mut numbers = Vec::new();
        if end > self.first_max {
            numbers.extend(along(newest, end.min(count))?.into_iter().skip(part.offset));
            return Ok(FoundPersons { count, numbers, project, view });
        }
        let first = self.first.into_sorted_vec();
        let mut at = 0_usize;
        for same in first.chunk_by(|Reverse((a, _)), Reverse((b, _))| a == b) {
            let Some(Reverse((time, number))) = same.first().copied() else { continue };
            let skipped = part.offset.saturating_sub(at).min(same.len());
            at += same.len();
            if skipped == same.len() {
                continue;
            }
            if same.len() == 1 && left_out != Some(time) {
                numbers.push(number);
            } else {
                let own = along(UnixMicros(time), same.len())?;
                numbers.extend(own.into_iter().skip(skipped));
            }
        }
        Ok(FoundPersons { count, numbers, project, view })
    }
}

fn place(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// The numbers of the first `count` persons of the list who were not created after `newest` and are among `all`.
fn along(
    view: &View,
    project: ProjectId,
    newest: UnixMicros,
    count: usize,
    all: &BooleanBufferBuilder,
    stop: &AtomicBool,
) -> Result<Vec<i64>, IdentityError> {
    let mut numbers = Vec::new();
    if count == 0 {
        return Ok(numbers);
    }
    view.scan_listed(project, newest, |number| {
        if place(number) < all.len() && all.get_bit(place(number)) {
            numbers.push(number);
        }
        if numbers.len() < count && !stop.load(Ordering::Relaxed) {
            Flow::Continue(())
        } else {
            Flow::Break(())
        }
    })?;
    Ok(numbers)
}

impl Engine {
    /// The persons of a project as of now, once what was acknowledged before can be read.
    async fn persons_now(&self, project: ProjectId) -> Result<Present, QueryError> {
        self.wait().await?;
        let view = Arc::new(self.identities().view());
        let persons = PersonsProvider::new(view, project, self.shared.sources.persons.clone());
        Ok(Present { persons, now: self.present(project), memory: self.memory() })
    }

    /// The persons who answer, found by a look at everybody.
    pub(super) async fn find_everybody(
        &self,
        project: ProjectId,
        question: PersonsQuestion,
        part: Part,
    ) -> Result<FoundPersons, QueryError> {
        let present = self.persons_now(project).await?;
        let (view, newest) = (Arc::clone(&present.persons.view), present.newest());
        let next = view.next_number()?;
        let permit = self.permit().await?;
        let plan = self.on_a_thread(move |_| Ok(present.plan(question))).await??;
        let query = DataFrame::new(self.shared.base.clone(), plan);
        let mut answer = self.begin(query, Some(permit));
        let listing = spawned(&self.shared.runtime, async move {
            let mut listing = Listing::of(part, REMEMBERED_MAX, next);
            while let Some(rows) = answer.next().await {
                listing.add(&rows?);
            }
            Ok::<_, QueryError>(listing)
        });
        let listing = listing.await.map_err(given_up)??;
        let permit = self.permit().await?;
        let found = self.on_a_thread(move |stop| {
            let _permit = permit;
            listing.found((view, project), newest, part, stop)
        });
        found.await
    }

    /// For how many persons of a project a test holds, as of every acknowledged event, and how many there are in all.
    pub async fn count_persons(
        &self,
        project: ProjectId,
        test: impl Fn(&View, &Person) -> bool + Send + Sync + 'static,
    ) -> Result<(u64, u64), QueryError> {
        let present = self.persons_now(project).await?;
        let total = present.persons.view.person_count(project)?;
        let test: Arc<RowTest> = Arc::new(move |view, row, _| {
            let person = row.person();
            Ok(test(view, &person.map_err(|error| DataFusionError::External(Box::new(error)))?))
        });
        let holds = holds_for_row(Pace::Slow(Watched::default()), test);
        let counted = present.rows(holds)?.aggregate(Vec::<Expr>::new(), vec![count(lit(1))])?;
        let query = DataFrame::new(self.shared.base.clone(), counted.build()?);
        let (_, batches) = self.collect(query).await?;
        let matching = batches.iter().find_map(|batch| {
            batch.columns().first()?.as_primitive_opt::<Int64Type>()?.values().first().copied()
        });
        Ok((u64::try_from(matching.unwrap_or(0)).unwrap_or(0), total))
    }
}
