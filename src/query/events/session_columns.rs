//! Session properties as additional columns of the events of a plan ([`with_sessions`]), and expressions over them. The
//! columns are null for events without a session.
//!
//! A plan over events of a time range also reads those within [`EDGE`] before and after it: a session that crosses the
//! edge is complete unless it extends farther than that. Events beyond are not counted as part of it.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, JoinType, ScalarUDF, cast};
use datafusion::prelude::{ident, lit};

use crate::events::event_sessions;
use crate::events::event_sessions::{Kind, PROPERTIES, SESSION_ID, kind};
use crate::filter::condition;
use crate::filter::condition::{About, Content, Pace};
use crate::filter::content::{ConditionContent, OfSession};
use crate::kernel::error::QueryError;
use crate::kernel::view::View;
use weir_base::clock::UnixMicros;
use weir_event::predicate::Predicate;
use weir_event::predicate::moment::Now;

/// How far before and after the time range events of the same sessions are read, in microseconds: three days, as in
/// PostHog.
const EDGE: i64 = 3 * 86_400 * 1_000_000;

/// Prefix of the names of columns with session properties; no column of events begins with it.
const PREFIX: &str = "session.";

/// The session id among these columns.
const KEY: &str = "session_of";

fn column(property: &str) -> String {
    format!("{PREFIX}{property}")
}

/// `events`, which lie within the time bounds, joined with the columns of their sessions if an expression in `used`
/// refers to any.
///
/// # Errors
///
/// A bug in the plan.
pub async fn with_sessions<'e>(
    view: &View,
    events: DataFrame,
    (from, to): (UnixMicros, UnixMicros),
    used: impl IntoIterator<Item = &'e Expr>,
) -> Result<DataFrame, QueryError> {
    let is_there = events.schema().has_column_with_unqualified_name(KEY);
    let names_any = |expression: &Expr| {
        expression.column_refs().iter().any(|column| column.name.starts_with(PREFIX))
    };
    if is_there || !used.into_iter().any(names_any) {
        return Ok(events);
    }
    let time = |at: i64| lit(ScalarValue::TimestampMicrosecond(Some(at), Some("UTC".into())));
    let (from, to) = (time(from.0.saturating_sub(EDGE)), time(to.0.saturating_add(EDGE)));
    let all = view.table("events").await?.filter(ident("timestamp").between(from, to))?;
    let (state, all) = all.into_parts();
    let sessions = DataFrame::new(state, event_sessions::plan(all, view.exact())?);
    let properties = PROPERTIES.iter().map(|(name, _)| ident(*name).alias(column(name)));
    let columns =
        std::iter::once(ident(SESSION_ID).alias(KEY)).chain(properties).collect::<Vec<_>>();
    // The left side is the build side, held in memory: the smaller one.
    Ok(sessions.select(columns)?.join(events, JoinType::Right, &[KEY], &[SESSION_ID], None)?)
}

/// A property of an event's session as text; null if it has none.
pub fn text(property: &str) -> Expr {
    let column = ident(column(property));
    match kind(property) {
        Some(Kind::Text) => column,
        _ => cast(column, DataType::Utf8View),
    }
}

/// A property of an event's session as a number, with true as 1 and false as 0; null if it has none.
pub fn number(property: &str) -> Expr {
    let column = ident(column(property));
    match kind(property) {
        Some(Kind::Truth) => cast(cast(column, DataType::Int64), DataType::Float64),
        _ => cast(column, DataType::Float64),
    }
}

/// The condition that a predicate on a session property matches the session of an event: true or false. A name that is
/// no session property counts as not set.
pub(crate) fn condition(predicate: Predicate, now: Now) -> Expr {
    let column = column(&predicate.key);
    match function(OfSession { predicate, now }) {
        Ok(function) => function.call(vec![ident(column)]),
        Err(OfSession { predicate, now }) => lit(predicate.matches_value(None, now)),
    }
}

/// The same as a function of the column of the property.
///
/// # Errors
///
/// There is no such property.
pub(crate) fn function(of: OfSession) -> Result<ScalarUDF, OfSession> {
    let Some(kind) = kind(&of.predicate.key) else { return Err(of) };
    let content = Content::Known(Box::new(ConditionContent::Session(of.clone())));
    let about = About { content, ..About::default() };
    let (OfSession { predicate, now }, name) = (of, "matches_session");
    let without = predicate.matches_value(None, now);
    let pace = Pace::with(predicate.pattern().cloned().into_iter().collect(), Pace::Steady);
    let test = condition::of_one(name, move |column, call| {
        condition::hold(column, call, without, |value| predicate.matches_value(Some(&value), now))
    });
    Ok(condition::function(about, name, vec![event_sessions::data_type(kind)], pace, test))
}
