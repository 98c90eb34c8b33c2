//! How many persons or groups a rule holds for, as of one snapshot of the identity store, with the
//! limits of queries, by a plan over the table of persons or groups.
//!
//! The rule is the caller's, of groups a [`condition`] of the plan, not SQL: rules have operators
//! (patterns with a limit, versions, the comparison of truth values) whose exact meaning is that of the
//! evaluation of flags, and a count must be what evaluation says.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::dataframe::DataFrame;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::{col, lit};
use serde_json::{Map, Value};

use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_identity::person::{Group, Person};
use weir_identity::view::{Flow, View};
use weir_query::filter::condition::{Call, Pace, condition};
use weir_query::guard::watched::Watched;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;

/// Columns of a group that a rule may look at.
fn of_group() -> [(&'static str, DataType); 3] {
    [("key", DataType::Utf8View), ("created_at", time()), ("properties", DataType::Utf8View)]
}

fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// How many there are in all, and how many of them the rule holds for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// For whom the rule holds.
    pub matching: u64,
    /// All of them.
    pub total: u64,
}

/// Counts the persons of a project, as of every acknowledged event. Persons are shown to several
/// threads at once.
pub async fn count_persons(
    engine: &Engine,
    project: ProjectId,
    test: impl Fn(&View, &Person) -> bool + Send + Sync + 'static,
) -> Result<Audience, QueryError> {
    let (matching, total) = engine.count_persons(project, test).await?;
    Ok(Audience { matching, total })
}

/// Counts the groups of one type.
pub async fn count_groups(
    engine: &Engine,
    project: ProjectId,
    type_index: u8,
    test: impl Fn(&str, &Group) -> bool + Send + Sync + 'static,
) -> Result<Audience, QueryError> {
    let rows = engine.view(project).await?.table("groups").await?;
    let rows = rows.filter(col("group_type_index").eq(lit(i64::from(type_index))))?;
    let test = move |columns: &[ArrayRef], call: Call<'_>| {
        call.check()?;
        each(columns, |row| {
            let (key, group) = group(columns, row)?;
            Some(test(key, &group))
        })
    };
    let pace = Pace::Slow(Watched::default());
    count_rows(engine, rows, condition("holds_for_group", &of_group(), pace, test)).await
}

/// Shows the persons of a project in the order of their rows, as of every acknowledged event.
pub async fn visit_persons(
    engine: &Engine,
    project: ProjectId,
    mut visit: impl FnMut(&View, &Person) + Send + 'static,
) -> Result<(), QueryError> {
    engine
        .read(move |view, stop| {
            view.scan_persons(project, |person| {
                visit(&view, &person);
                flow(stop)
            })
        })
        .await
}

async fn count_rows(engine: &Engine, rows: DataFrame, holds: Expr) -> Result<Audience, QueryError> {
    let matching = sum(cast(holds, DataType::Int64)).alias("matching");
    let counts = rows.aggregate(Vec::new(), vec![count(lit(1)).alias("total"), matching])?;
    let (_, batches) = engine.collect(counts).await?;
    let number = |name: &str| {
        let value = |batch: &RecordBatch| {
            let column = batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
            // The sum over no rows is null.
            column.iter().next().flatten()
        };
        u64::try_from(batches.iter().find_map(value).unwrap_or(0)).unwrap_or(0)
    };
    Ok(Audience { matching: number("matching"), total: number("total") })
}

fn flow(stop: &AtomicBool) -> Flow {
    if stop.load(Ordering::Relaxed) { Flow::Break(()) } else { Flow::Continue(()) }
}

/// Asks `test` for every row; `None` is a row that cannot be read.
fn each(columns: &[ArrayRef], mut test: impl FnMut(usize) -> Option<bool>) -> Result<BooleanArray> {
    let rows = columns.first().map_or(0, |column| column.len());
    let answers = (0..rows).map(&mut test).collect::<Option<Vec<bool>>>();
    answers.map(BooleanArray::from).ok_or_else(|| {
        DataFusionError::Internal("a row of persons or groups has other columns".to_owned())
    })
}

fn group(columns: &[ArrayRef], row: usize) -> Option<(&str, Group)> {
    let [key, created_at, properties] = columns else { return None };
    let created_at = created_at.as_primitive_opt::<TimestampMicrosecondType>()?;
    let created_at = UnixMicros(created_at.value(row));
    let group = Group { created_at, properties: object(properties, row)? };
    Some((key.as_string_view_opt()?.value(row), group))
}

fn object(properties: &ArrayRef, row: usize) -> Option<Map<String, Value>> {
    json::restore(properties.as_string_view_opt()?.value(row).as_bytes()).ok()
}
