//! Reads single events: the newest ones, one by its id, and recent values of a property.
//!
//! # The newest
//!
//! A live view requests the newest hundred of a hundred million events again and again. So the time of the last of
//! these is determined first: the search goes back from the newest event in windows of growing length and reads only
//! the timestamp column and the columns that the filters need. Files, row groups and pages outside of a window are
//! pruned by their statistics. Only then are the full rows since that time read. Both steps read the same snapshot.
//! The events of one person are read in a single pass, and [`history`] streams them in the order of time.
//! [`arrivals`] returns what has arrived since a moment, in the order of arrival.

pub mod arrivals;
pub mod history;
pub(crate) mod newest;

use std::sync::atomic::AtomicBool;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, lit};
use futures::future::BoxFuture;
use uuid::Uuid;

use crate::columns::{texts, time};
use crate::filters::Filters;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::view::View as IdentityView;
use weir_query::events::event_property::whole_text;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::files::File;
use weir_query::kernel::view::View;
use weir_query::output::format::Format;

/// Most events that are sampled for the values of a property.
const VALUES_SAMPLE: usize = 100_000;

/// Most distinct ids of a person by which files are pruned; with more, most files would contain one of them.
const PRUNING_IDS_MAX: usize = 100;

/// Columns of an event in responses.
const COLUMNS: [&str; 8] = [
    "uuid",
    "event",
    "distinct_id",
    "person_id",
    "timestamp",
    "received_at",
    "elements_chain",
    "properties",
];

/// A query for events. All conditions that are set must hold.
#[derive(Clone, Default)]
pub struct EventsQuestion {
    /// The name.
    pub event: Option<String>,
    /// The distinct id.
    pub distinct_id: Option<String>,
    /// The current person.
    pub person: Option<Uuid>,
    /// Filters on the event, its groups, its person, and the cohorts of that person.
    pub properties: Filters,
    /// Exclusive lower bound of the time.
    pub after: Option<UnixMicros>,
    /// Exclusive upper bound of the time.
    pub before: Option<UnixMicros>,
}

impl std::fmt::Debug for EventsQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventsQuestion").finish_non_exhaustive()
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Its id.
    pub uuid: String,
    /// Its name.
    pub event: String,
    /// The distinct id.
    pub distinct_id: String,
    /// The current person.
    pub person: String,
    /// When it happened.
    pub timestamp: UnixMicros,
    /// When this server received it.
    pub received_at: UnixMicros,
    /// `$elements_chain`.
    pub elements_chain: Option<String>,
    /// The JSON object as it was sent.
    pub properties: String,
}

/// A query for the values of a property.
#[derive(Clone, Debug, Default)]
pub struct ValuesQuestion {
    /// The name of the property.
    pub key: String,
    /// Substring of the value, case-insensitive; empty matches all.
    pub part: String,
    /// Names of events; empty matches all.
    pub events: Vec<String>,
    /// Exclusive lower bound of the time of events.
    pub after: Option<UnixMicros>,
}

/// The newest events that match `question`, by time and then by id, both descending: `limit` of them after the first
/// `offset`.
pub fn latest(
    engine: &Engine,
    project: ProjectId,
    question: EventsQuestion,
    (offset, limit): (usize, usize),
) -> BoxFuture<'_, Result<Vec<EventRow>, QueryError>> {
    Box::pin(async move {
        let wanted = offset.saturating_add(limit);
        let rows_max = engine.rows_max();
        if wanted > rows_max {
            return Err(QueryError::TooManyRows(rows_max));
        }
        engine.note_events_named(project, question.event.as_deref());
        let bounds = (question.after, question.before);
        // Events of one person are few and scattered, so the second pass would cost as much as the first.
        let is_of_one = question.distinct_id.is_some() || question.person.is_some();
        let (view, mut rows) = question.rows(engine, project).await?;
        if !is_of_one {
            let newest = newest::condition(engine, (&view, &rows), bounds, wanted).await?;
            rows = rows.filter(newest)?;
        }
        let order = vec![col("timestamp").sort(false, false), col("uuid").sort(false, false)];
        collect(engine, rows.sort(order)?.limit(offset, Some(limit))?).await
    })
}

/// The events that match `question` as a file, newest first: those after the first `offset`, or `limit` of these. It
/// has the columns of [`EventRow`], and any number of rows.
pub fn file(
    engine: &Engine,
    project: ProjectId,
    question: EventsQuestion,
    (offset, limit): (usize, Option<usize>),
    format: Format,
) -> BoxFuture<'_, Result<File, QueryError>> {
    Box::pin(async move {
        engine.note_events_named(project, question.event.as_deref());
        let (_, rows) = question.rows(engine, project).await?;
        let order = vec![col("timestamp").sort(false, false), col("uuid").sort(false, false)];
        let columns: Vec<Expr> = COLUMNS.iter().map(|name| col(*name)).collect();
        let rows = rows.sort(order)?.limit(offset, limit)?.select(columns)?;
        engine.file_of(project, rows, format).await
    })
}

/// The event with this id.
pub fn by_id(
    engine: &Engine,
    project: ProjectId,
    id: Uuid,
) -> BoxFuture<'_, Result<Option<EventRow>, QueryError>> {
    Box::pin(async move {
        let events = engine.view(project).await?.table("events").await?;
        // A duplicate that was stored is the same event.
        let rows = events.filter(col("uuid").eq(lit(id.to_string())))?.limit(0, Some(1))?;
        Ok(collect(engine, rows).await?.pop())
    })
}

/// Values that the property has in a sample of the events, as texts; values that are not strings are compact JSON.
pub fn values(
    engine: &Engine,
    project: ProjectId,
    question: ValuesQuestion,
) -> BoxFuture<'_, Result<Vec<String>, QueryError>> {
    Box::pin(async move {
        let view = engine.view(project).await?;
        let value = whole_text(&question.key, view.exact());
        let mut condition = value.clone().is_not_null();
        engine.note_events_named(project, question.events.iter().map(String::as_str));
        if !question.events.is_empty() {
            let names = question.events.iter().map(|name| lit(name.clone())).collect();
            condition = condition.and(col("event").in_list(names, false));
        }
        if !question.part.is_empty() {
            let lower = datafusion::functions::expr_fn::lower(value.clone());
            let part = lit(question.part.to_lowercase());
            condition = condition.and(datafusion::functions::expr_fn::contains(lower, part));
        }
        let rows =
            within(view.table("events").await?, (question.after, None))?.filter(condition)?;
        let rows = rows.limit(0, Some(VALUES_SAMPLE))?.select(vec![value.alias("value")])?;
        let (_, batches) = engine.collect(rows).await?;
        let values = batches.iter().flat_map(|batch| texts(batch, "value"));
        Ok(values.collect())
    })
}

impl EventsQuestion {
    /// A query that no event matches.
    pub fn of_nothing() -> Self {
        Self { before: Some(UnixMicros(i64::MIN)), ..Self::default() }
    }

    /// The events that match, in a view that contains every acknowledged event.
    async fn rows(
        self,
        engine: &Engine,
        project: ProjectId,
    ) -> Result<(View, DataFrame), QueryError> {
        // Conditions on persons and groups must reflect every acknowledged event.
        engine.wait().await?;
        let view = engine.view(project).await?;
        let person = match self.person {
            Some(person) => Some(of_person(engine, project, person).await?),
            None => None,
        };
        let equal = |name: &str, value: Option<String>| value.map(|value| col(name).eq(lit(value)));
        let conditions = [
            equal("event", self.event),
            equal("distinct_id", self.distinct_id),
            person,
            self.properties.condition(engine, project, view.exact()),
        ];
        let rows = within(view.table("events").await?, (self.after, self.before))?;
        let rows = conditions.into_iter().flatten().try_fold(rows, DataFrame::filter)?;
        Ok((view, rows))
    }
}

/// The condition that an event belongs to a person. Its events have its distinct ids, whatever person id was stored
/// with them, and files have bloom filters of the distinct ids; to which person an event belongs now is resolved
/// after it was read.
pub(crate) async fn of_person(
    engine: &Engine,
    project: ProjectId,
    person: Uuid,
) -> Result<Expr, QueryError> {
    let read =
        move |view: IdentityView, _: &AtomicBool| match view.person_by_uuid(project, person)? {
            Some(stored) => view.first_ids(project, stored.number, PRUNING_IDS_MAX + 1),
            None => Ok(Vec::new()),
        };
    let ids = engine.read(read).await?;
    let is_of_person = col("person_id").eq(lit(person.to_string()));
    if ids.is_empty() || ids.len() > PRUNING_IDS_MAX {
        return Ok(is_of_person);
    }
    let ids = ids.into_iter().map(lit).collect();
    Ok(col("distinct_id").in_list(ids, false).and(is_of_person))
}

async fn collect(engine: &Engine, rows: DataFrame) -> Result<Vec<EventRow>, QueryError> {
    let columns: Vec<Expr> = COLUMNS.iter().map(|name| col(*name)).collect();
    let (_, batches) = engine.collect(rows.select(columns)?).await?;
    Ok(batches.iter().flat_map(event_rows).collect())
}

/// Rows strictly between two times.
pub(crate) fn within(
    rows: DataFrame,
    (after, before): (Option<UnixMicros>, Option<UnixMicros>),
) -> Result<DataFrame, QueryError> {
    let later = after.map(|after| col("timestamp").gt(time(after)));
    let earlier = before.map(|before| col("timestamp").lt(time(before)));
    Ok(later.into_iter().chain(earlier).try_fold(rows, DataFrame::filter)?)
}

fn event_rows(batch: &RecordBatch) -> Vec<EventRow> {
    let text =
        |name: &str| batch.column_by_name(name).and_then(|column| column.as_string_view_opt());
    let times = |name: &str| {
        let times = batch.column_by_name(name);
        times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>())
    };
    let (timestamps, arrivals) = (times("timestamp"), times("received_at"));
    let at = |name: &str, row: usize| {
        let column = text(name).filter(|column| column.is_valid(row))?;
        Some(column.value(row).to_owned())
    };
    let row = |row: usize| EventRow {
        uuid: at("uuid", row).unwrap_or_default(),
        event: at("event", row).unwrap_or_default(),
        distinct_id: at("distinct_id", row).unwrap_or_default(),
        person: at("person_id", row).unwrap_or_default(),
        timestamp: UnixMicros(timestamps.map_or(0, |times| times.value(row))),
        received_at: UnixMicros(arrivals.map_or(0, |times| times.value(row))),
        elements_chain: at("elements_chain", row),
        properties: at("properties", row).unwrap_or_else(|| "{}".to_owned()),
    };
    (0..batch.num_rows()).map(row).collect()
}
