//! Sessions of events: the events of a project that share a `$session_id`, a non-empty text. Sessions are not stored:
//! their properties are aggregated from events by each query ([`plan`]), so that late events, merges of persons and
//! deletions need no maintenance; SQL sees them as the table `sessions` ([`SessionsTable`]).
//!
//! The entry event of a session is its first one with a `$current_url`, the exit event the last one. Of several events
//! at the same time, each property takes the smallest text at the entry and the largest at the exit, so that the result
//! depends on neither arrival order nor files.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::functions::expr_fn::{coalesce, concat, date_trunc, nullif, right, substr};
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType, cast, when};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{col, ident, lit};

use crate::events::event_property::whole_text;
use crate::events::session_functions::SessionFunction;
use weir_event::dictionary;
use weir_storage::exact::ExactColumns;

/// The column with the session id.
pub(crate) const SESSION_ID: &str = "session_id";

/// Duration in seconds from which a session is no bounce, however few its events are (PostHog's figure).
const NO_BOUNCE_SECONDS_MIN: i64 = 10;

/// Position (1-based) of the text after its time in a stamped value: see [`SessionFunction::Stamped`].
const TEXT_AT: i64 = 17;

/// Characters of a person's uuid.
const PERSON_CHARS: i64 = 36;

/// Type of a session property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text, or null.
    Text,
    /// A whole number.
    Number,
    /// True, false or null.
    Truth,
    /// A time.
    Time,
}

use Kind::{Number, Text, Time, Truth};

/// The properties of sessions, by PostHog's names: columns of `sessions`, and the names in filters, breakdowns and math
/// of insights.
pub const PROPERTIES: [(&str, Kind); 25] = [
    ("$start_timestamp", Time),
    ("$end_timestamp", Time),
    ("$session_duration", Number),
    ("$pageview_count", Number),
    ("$autocapture_count", Number),
    ("$screen_count", Number),
    ("$is_bounce", Truth),
    ("$entry_current_url", Text),
    ("$entry_hostname", Text),
    ("$entry_pathname", Text),
    ("$end_current_url", Text),
    ("$end_hostname", Text),
    ("$end_pathname", Text),
    // Their former names.
    ("$exit_current_url", Text),
    ("$exit_pathname", Text),
    ("$entry_referring_domain", Text),
    ("$entry_utm_source", Text),
    ("$entry_utm_medium", Text),
    ("$entry_utm_campaign", Text),
    ("$entry_utm_content", Text),
    ("$entry_utm_term", Text),
    ("$entry_gclid", Text),
    ("$entry_gad_source", Text),
    ("$entry_fbclid", Text),
    ("$entry_msclkid", Text),
];

/// Prefix of the name of a property of the entry event.
const ENTRY: &str = "$entry_";

/// Properties of the entry event that become properties of the session.
const OF_ENTRY: [&str; 10] = [
    "$referring_domain",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_content",
    "utm_term",
    "gclid",
    "gad_source",
    "fbclid",
    "msclkid",
];

/// Columns of the aggregated sessions.
mod gathered {
    pub(crate) const DISTINCT_ID: &str = "last_distinct_id";
    pub(crate) const PERSON_ID: &str = "last_person_id";
    pub(crate) const START: &str = "$start_timestamp";
    pub(crate) const END: &str = "$end_timestamp";
    pub(crate) const FIRST_URL: &str = "first_url";
    pub(crate) const LAST_URL: &str = "last_url";
    pub(crate) const PAGEVIEWS: &str = "$pageview_count";
    pub(crate) const AUTOCAPTURES: &str = "$autocapture_count";
    pub(crate) const SCREENS: &str = "$screen_count";
}

/// The type of a session property; `None` if there is no such property.
pub fn kind(property: &str) -> Option<Kind> {
    PROPERTIES.iter().find(|(own, _)| *own == property).map(|(_, kind)| *kind)
}

/// The sessions of `events`, of which the columns are `exact`: one row for each, with its id, the distinct id and
/// person of its last event, and the columns of [`PROPERTIES`]. Columns that a query does not read are not computed.
///
/// # Errors
///
/// A bug in the plan.
pub(crate) fn plan(events: LogicalPlan, exact: ExactColumns) -> Result<LogicalPlan> {
    let id = || ident(SESSION_ID);
    let has_id = id().is_not_null().and(id().not_eq(lit("")));
    let sessions = LogicalPlanBuilder::from(events)
        .filter(has_id)?
        .aggregate(vec![id()], aggregates(exact)?)?
        .project(columns()?)?;
    sessions.build()
}

/// The aggregates over the events of a session.
fn aggregates(exact: ExactColumns) -> Result<Vec<Expr>> {
    let time = || ident("timestamp");
    let stamp = SessionFunction::Stamped.function();
    let stamped = |text: Expr| stamp.call(vec![time(), cast(text, DataType::Utf8View)]);
    // Prefixed with the distinct id, so that among several events at one time distinct id and person are of the same
    // event.
    let person = concat(vec![ident("distinct_id"), lit("\0"), ident("person_id")]);
    let url = || nullif(whole_text("$current_url", exact), lit(""));
    let named = |name: &str| -> Result<Expr> {
        Ok(count(when(col("event").eq(lit(name)), lit(1_i64)).end()?))
    };
    let mut all = vec![
        max(stamped(ident("distinct_id"))).alias(gathered::DISTINCT_ID),
        max(stamped(person)).alias(gathered::PERSON_ID),
        min(time()).alias(gathered::START),
        max(time()).alias(gathered::END),
        min(stamped(url())).alias(gathered::FIRST_URL),
        max(stamped(url())).alias(gathered::LAST_URL),
        named("$pageview")?.alias(gathered::PAGEVIEWS),
        named("$autocapture")?.alias(gathered::AUTOCAPTURES),
        named("$screen")?.alias(gathered::SCREENS),
    ];
    for key in OF_ENTRY {
        // If the entry event lacks a property, so does the session, even if its later events have it.
        let own = coalesce(vec![cast(whole_text(key, exact), DataType::Utf8View), empty()]);
        let at_entry = when(url().is_not_null(), own).end()?;
        all.push(min(stamped(at_entry)).alias(entry_name(key)));
    }
    Ok(all)
}

/// The columns of the sessions, computed from the aggregates.
fn columns() -> Result<Vec<Expr>> {
    use gathered::{AUTOCAPTURES, END, FIRST_URL, LAST_URL, PAGEVIEWS, START};
    let plain = |name: &str| substr(ident(name), lit(TEXT_AT));
    let (path, host) = (SessionFunction::Path.function(), SessionFunction::Host.function());
    let second = |name: &str| {
        let second = date_trunc(lit("second"), ident(name));
        cast(second, DataType::Int64) / lit(1_000_000_i64)
    };
    // The number of second boundaries between both, as PostHog's database counts them.
    let seconds = || second(END) - second(START);
    let has_more = ident(PAGEVIEWS).gt(lit(1_i64)).or(ident(AUTOCAPTURES).gt(lit(0_i64)));
    let is_long = seconds().gt_eq(lit(NO_BOUNCE_SECONDS_MIN));
    let is_bounce = when(ident(PAGEVIEWS).gt(lit(0_i64)), !(has_more.or(is_long))).end()?;
    let mut columns = vec![
        ident(SESSION_ID),
        plain(gathered::DISTINCT_ID).alias("distinct_id"),
        right(ident(gathered::PERSON_ID), lit(PERSON_CHARS)).alias("person_id"),
    ];
    for (name, _) in PROPERTIES {
        let value = match name {
            "$session_duration" => seconds(),
            "$is_bounce" => is_bounce.clone(),
            "$entry_current_url" => plain(FIRST_URL),
            "$entry_hostname" => host.call(vec![plain(FIRST_URL)]),
            "$entry_pathname" => path.call(vec![plain(FIRST_URL)]),
            "$end_current_url" | "$exit_current_url" => plain(LAST_URL),
            "$end_hostname" => host.call(vec![plain(LAST_URL)]),
            "$end_pathname" | "$exit_pathname" => path.call(vec![plain(LAST_URL)]),
            of_entry if of_entry.starts_with(ENTRY) => nullif(plain(of_entry), empty()),
            gathered => ident(gathered),
        };
        columns.push(value.alias(name));
    }
    Ok(columns)
}

/// The session property that holds this property of the entry event.
fn entry_name(key: &str) -> String {
    format!("{ENTRY}{}", key.trim_start_matches('$'))
}

fn empty() -> Expr {
    lit(ScalarValue::Utf8View(Some(String::new())))
}

/// The type of the column of a session property.
pub(crate) fn data_type(kind: Kind) -> DataType {
    match kind {
        Text => DataType::Utf8View,
        Number => DataType::Int64,
        Truth => DataType::Boolean,
        Time => time_type(),
    }
}

pub(super) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The table `sessions`, expanded to its plan when a query names it.
#[derive(Debug)]
pub(crate) struct SessionsTable {
    pub(crate) events: Arc<dyn TableProvider>,
    pub(crate) exact: ExactColumns,
}

impl SessionsTable {
    fn plan(&self) -> Result<LogicalPlan> {
        let events = provider_as_source(Arc::clone(&self.events));
        plan(LogicalPlanBuilder::scan("events", events, None)?.build()?, self.exact)
    }
}

#[async_trait]
impl TableProvider for SessionsTable {
    fn schema(&self) -> SchemaRef {
        dictionary::SESSIONS.sql_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        self.plan().ok().map(Cow::Owned)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut plan = LogicalPlanBuilder::from(self.plan()?);
        if let Some(wanted) = projection {
            let schema = self.schema().project(wanted)?;
            plan = plan.project(schema.fields().iter().map(|field| ident(field.name())))?;
        }
        state.create_physical_plan(&plan.build()?).await
    }
}

#[cfg(test)]
mod tests;
