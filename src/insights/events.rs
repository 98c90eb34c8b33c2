//! Single events: the newest of them, one by its id, and the values that a property has had lately.
//!
//! # The newest
//!
//! A live view asks for the newest hundred of a hundred million again and again. So the time of the
//! last one wanted is found first, going back from the newest event in windows that grow, and
//! reading nothing but times and what the filters need. Files, row groups and pages outside of a
//! window are left out by their bounds. Only then are the rows since that time read whole. Both
//! steps see the same snapshot. Of one person all events are looked for at once, and shown in the order of
//! time by [`history`]. What has arrived since a moment, in the order of arrival, is told by [`arrivals`].

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
use weir_query::kernel::view::View;

/// Events that are looked at for the values of a property.
const VALUES_SAMPLE: usize = 100_000;

/// Distinct ids of a person by which files are pruned; more would be in most of them.
const PRUNING_IDS_MAX: usize = 100;

/// Columns of an event as it is told.
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

/// Which events are asked for. Everything that is given must hold.
#[derive(Clone, Default)]
pub struct EventsQuestion {
    /// The name.
    pub event: Option<String>,
    /// The sender's id of the person.
    pub distinct_id: Option<String>,
    /// The person, as of now.
    pub person: Option<Uuid>,
    /// Filters on the event, on its person and the cohorts of that, and on its groups.
    pub properties: Filters,
    /// Only later ones.
    pub after: Option<UnixMicros>,
    /// Only earlier ones.
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
    /// The sender's id of the person.
    pub distinct_id: String,
    /// The person, as of now.
    pub person: String,
    /// When it happened.
    pub timestamp: UnixMicros,
    /// When this server received it.
    pub received_at: UnixMicros,
    /// `$elements_chain`.
    pub elements_chain: Option<String>,
    /// The JSON object as the sender wrote it.
    pub properties: String,
}

/// Which values are asked for.
#[derive(Clone, Debug, Default)]
pub struct ValuesQuestion {
    /// The property.
    pub key: String,
    /// A part of the value, in any case; empty takes all.
    pub part: String,
    /// Names of events; none takes all.
    pub events: Vec<String>,
    /// Only later events.
    pub after: Option<UnixMicros>,
}

/// The newest events that answer `question`, by time and then by id, both descending; `limit` of
/// them after the first `offset`.
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
        // One person's events are few and anywhere, so a second pass would cost as much as the first.
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

/// The event with this id.
pub fn by_id(
    engine: &Engine,
    project: ProjectId,
    id: Uuid,
) -> BoxFuture<'_, Result<Option<EventRow>, QueryError>> {
    Box::pin(async move {
        let events = engine.view(project).await?.table("events").await?;
        // A copy of an event that slipped in twice is the same event.
        let rows = events.filter(col("uuid").eq(lit(id.to_string())))?.limit(0, Some(1))?;
        Ok(collect(engine, rows).await?.pop())
    })
}

/// Values that the property has in a sample of the events, as texts; those that are no text are
/// compact JSON.
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
    /// The events that answer it, of a view that has every acknowledged one.
    async fn rows(
        self,
        engine: &Engine,
        project: ProjectId,
    ) -> Result<(View, DataFrame), QueryError> {
        // Persons and groups in the conditions are as of every acknowledged event.
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

/// The events of a person. They have its distinct ids, whatever person they were stored with, and
/// files have bloom filters of those; who an event belongs to is known when it has been read.
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
