//! Local time in SQL, in the project's time zone. Time columns have the zone in their type ([`table`], [`rows`]), so
//! that all operations on them are local: parts, starts of intervals, dates, texts, days that are added, and
//! comparisons with times without an offset. Files contain UTC, and so do results ([`answer`]); the cast between the
//! two changes no value, and planning removes it from comparisons, so that files are pruned by them.
//!
//! [`LocalTimes`] substitutes our own functions ([`clocks`]) where DataFusion's conversions fail at daylight saving
//! changes, where local times are skipped or repeated, take midnight of a day as that of UTC, or lose the zone. A
//! skipped time is taken as an hour later, and a repeated one as its first occurrence.

mod clocks;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, cast,
};
use datafusion::optimizer::AnalyzerRule;

pub(crate) use crate::functions::local_time::clocks::LocalTimeContent;

use crate::functions::local_time::clocks::Work;
use crate::kernel::rewritten::{columns_of, map_named};

/// Names of UTC in timestamp types. Its local times are the instants themselves.
const UTC: [&str; 3] = ["UTC", "Etc/UTC", "+00:00"];

/// Whether a zone is UTC.
pub(crate) fn is_utc(zone: &str) -> bool {
    UTC.contains(&zone)
}

/// A table with the zone in the type of its times.
///
/// # Errors
///
/// A bug in the plan.
pub(crate) fn table(
    name: &str,
    table: Arc<dyn TableProvider>,
    zone: &str,
) -> Result<Arc<dyn TableProvider>> {
    if is_utc(zone) {
        return Ok(table);
    }
    let source = provider_as_source(Arc::clone(&table));
    let stored = LogicalPlanBuilder::scan(name, source, None)?.build()?;
    match cast_times(&stored, &|unit, own| is_utc(own).then(|| in_zone(unit, zone)))? {
        Some(plan) => Ok(Arc::new(ViewTable::new(plan, None))),
        None => Ok(table),
    }
}

/// The same rows with the zone in the type of their times.
///
/// # Errors
///
/// A bug in the plan.
pub(crate) fn rows(rows: DataFrame, zone: &str) -> Result<DataFrame> {
    if is_utc(zone) {
        return Ok(rows);
    }
    let (state, plan) = rows.into_parts();
    let local = cast_times(&plan, &|unit, own| is_utc(own).then(|| in_zone(unit, zone)))?;
    Ok(DataFrame::new(state, local.unwrap_or(plan)))
}

/// The plan of a result, with instants in UTC. Starts of intervals by ClickHouse's functions are in nanoseconds, and
/// keep the project's offset.
///
/// # Errors
///
/// A bug in the plan.
pub(crate) fn answer(plan: LogicalPlan, zone: &str) -> Result<LogicalPlan> {
    if is_utc(zone) || matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)) {
        return Ok(plan);
    }
    let is_own = |unit: TimeUnit, own: &str| own == zone && unit != TimeUnit::Nanosecond;
    let utc = cast_times(&plan, &|unit, own| is_own(unit, own).then(|| in_zone(unit, "UTC")))?;
    Ok(utc.unwrap_or(plan))
}

fn in_zone(unit: TimeUnit, zone: &str) -> DataType {
    DataType::Timestamp(unit, Some(zone.into()))
}

/// The new type of a time with a zone; `None` if it stays the same.
type Recast<'r> = &'r dyn Fn(TimeUnit, &str) -> Option<DataType>;

/// The rows of a plan with the types of their times changed; `None` if none changes.
fn cast_times(plan: &LogicalPlan, recast: Recast<'_>) -> Result<Option<LogicalPlan>> {
    let mut is_changed = false;
    let columns = plan.schema().iter().map(|(table, field)| {
        let column = Expr::Column(Column::from((table, field)));
        match changed(field.data_type(), recast) {
            Some(own) => {
                is_changed = true;
                cast(column, own).alias_qualified(table.cloned(), field.name())
            }
            None => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    if !is_changed {
        return Ok(None);
    }
    LogicalPlanBuilder::from(plan.clone()).project(columns)?.build().map(Some)
}

/// The type with the times in it changed, including those of lists and structures; `None` if there are none.
fn changed(data_type: &DataType, recast: Recast<'_>) -> Option<DataType> {
    let field = |own: &FieldRef| {
        let data_type = changed(own.data_type(), recast)?;
        Some(Arc::new(Field::clone(own).with_data_type(data_type)))
    };
    match data_type {
        DataType::Timestamp(unit, Some(zone)) => recast(*unit, zone),
        DataType::List(item) => field(item).map(DataType::List),
        DataType::LargeList(item) => field(item).map(DataType::LargeList),
        DataType::FixedSizeList(item, length) => {
            field(item).map(|item| DataType::FixedSizeList(item, *length))
        }
        DataType::Struct(items) => {
            let own: Vec<Option<FieldRef>> = items.iter().map(field).collect();
            if own.iter().all(Option::is_none) {
                return None;
            }
            let items = own
                .into_iter()
                .zip(items)
                .map(|(own, item)| own.unwrap_or_else(|| Arc::clone(item)));
            Some(DataType::Struct(items.collect::<Fields>()))
        }
        _ => None,
    }
}

/// Analyzer rule that makes conversions, arithmetic and comparisons of times with a zone follow local time. It creates
/// functions, and depends on types, so it runs after the rule for type coercion.
#[derive(Debug)]
pub(crate) struct LocalTimes;

impl AnalyzerRule for LocalTimes {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            let schema = columns_of(&plan)?;
            map_named(plan, |expression| {
                expression.transform_down_up(
                    |expression| Ok(compared(expression, &schema)),
                    |expression| Ok(converted(expression, &schema)),
                )
            })
        })
        .map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "local_times"
    }
}

/// The type of an expression, if it can be determined.
fn type_of(expression: &Expr, schema: &DFSchema) -> Option<DataType> {
    expression.get_type(schema).ok()
}

/// Whether it is a time with a zone other than UTC.
fn is_local(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(zone)) if !is_utc(zone))
}

/// Rewrites a comparison of a local time with a date, or a time without a zone, as one of instants. DataFusion would
/// compare local times, which have to be computed for each row, so that files could not be pruned.
fn compared(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let behind = |expression: &Expr| local_behind(expression, schema);
    let all = |parts: &[&Expr]| parts.iter().find_map(|part| behind(part));
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            match all(&[&left, &right]) {
                Some(own) => {
                    let [left, right] = [left, right].map(|part| instant(*part, &own, schema));
                    let (left, right) = (Box::new(left), Box::new(right));
                    Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
                }
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        Expr::Between(mut between) => match all(&[&between.expr, &between.low, &between.high]) {
            Some(own) => {
                for part in [&mut between.expr, &mut between.low, &mut between.high] {
                    **part = instant(std::mem::take(&mut **part), &own, schema);
                }
                Transformed::yes(Expr::Between(between))
            }
            None => Transformed::no(Expr::Between(between)),
        },
        Expr::InList(mut list) => {
            match behind(&list.expr).or_else(|| list.list.iter().find_map(behind)) {
                Some(own) => {
                    for part in std::iter::once(&mut *list.expr).chain(&mut list.list) {
                        *part = instant(std::mem::take(part), &own, schema);
                    }
                    Transformed::yes(Expr::InList(list))
                }
                None => Transformed::no(Expr::InList(list)),
            }
        }
        other => Transformed::no(other),
    }
}

/// The type of the local time that an expression casts to a time without a zone.
fn local_behind(expression: &Expr, schema: &DFSchema) -> Option<DataType> {
    let Expr::Cast(Cast { expr, field }) = expression else { return None };
    let DataType::Timestamp(_, None) = field.data_type() else { return None };
    type_of(expr, schema).filter(is_local)
}

/// A side of a comparison as an instant.
fn instant(expression: Expr, own: &DataType, schema: &DFSchema) -> Expr {
    match expression {
        Expr::Cast(Cast { expr, field })
            if matches!(field.data_type(), DataType::Timestamp(_, None)) =>
        {
            match type_of(&expr, schema) {
                Some(from) if from == *own => *expr,
                Some(DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, Some(_))) => {
                    cast(*expr, own.clone())
                }
                _ => cast(Expr::Cast(Cast { expr, field }), own.clone()),
            }
        }
        other => cast(other, own.clone()),
    }
}

/// Replaces a conversion or a sum that depends on the time zone by a function.
fn converted(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let gives = match &expression {
        Expr::ScalarFunction(call) if call.func.name().starts_with("to_timestamp") => {
            type_of(&expression, schema).filter(is_local)
        }
        _ => None,
    };
    match expression {
        Expr::ScalarFunction(call) if gives.is_some() => {
            let found = match (&gives, call.args.as_slice()) {
                (Some(own), [from]) => told(call.func.name(), from, own, schema),
                _ => None,
            };
            found.map_or_else(|| Transformed::no(Expr::ScalarFunction(call)), Transformed::yes)
        }
        Expr::Cast(Cast { expr, field }) => match conversion(&expr, &field, schema) {
            Some(work) => Transformed::yes(work.call(field.data_type(), vec![*expr])),
            None => Transformed::no(Expr::Cast(Cast { expr, field })),
        },
        Expr::TryCast(TryCast { expr, field }) => match conversion(&expr, &field, schema) {
            Some(work) => Transformed::yes(work.lenient().call(field.data_type(), vec![*expr])),
            None => Transformed::no(Expr::TryCast(TryCast { expr, field })),
        },
        Expr::BinaryExpr(sum) if matches!(sum.op, Operator::Plus | Operator::Minus) => {
            moved(sum, schema)
        }
        Expr::ScalarFunction(call) if call.func.name() == "date_bin" => {
            match call.args.as_slice() {
                [_, time] => match type_of(time, schema).filter(is_local) {
                    Some(own) => {
                        Transformed::yes(Work::Binned(Arc::clone(&call.func)).call(&own, call.args))
                    }
                    None => Transformed::no(Expr::ScalarFunction(call)),
                },
                _ => Transformed::no(Expr::ScalarFunction(call)),
            }
        }
        other => Transformed::no(other),
    }
}

/// A sum of a local time and an interval. In a chain of sums only the type of the first operand is determined, as the
/// type of the chain would require the types of all operands.
fn moved(sum: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
    let BinaryExpr { left, op, right } = sum;
    let local = |of: &Expr| match clocks::gives(of) {
        Some(own) => Some(own.clone()).filter(is_local),
        None => type_of(of, schema).filter(is_local),
    };
    match type_of(&right, schema) {
        Some(DataType::Interval(_)) => {
            if let Some(own) = local(first_operand(&left)) {
                return Transformed::yes(clocks::moved(*left, *right, op == Operator::Minus, &own));
            }
        }
        Some(own) if is_local(&own) && op == Operator::Plus => {
            if matches!(type_of(&left, schema), Some(DataType::Interval(_))) {
                return Transformed::yes(clocks::moved(*right, *left, false, &own));
            }
        }
        _ => {}
    }
    Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))
}

/// The first operand of a chain of sums.
fn first_operand(mut expression: &Expr) -> &Expr {
    while let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, .. }) =
        expression
    {
        expression = left;
    }
    expression
}

/// The conversion of a text or a number by a function such as `to_timestamp` to an instant; `None` where the function
/// itself is correct. For a zone other than UTC it would interpret seconds as local time.
fn told(function: &str, from: &Expr, own: &DataType, schema: &DFSchema) -> Option<Expr> {
    match type_of(from, schema)? {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Some(Work::Read { is_lenient: false }.call(own, vec![from.clone()]))
        }
        kind if kind.is_integer() && function == "to_timestamp" => {
            let DataType::Timestamp(_, zone) = own else { return None };
            let seconds = DataType::Timestamp(TimeUnit::Second, zone.clone());
            let whole = cast(from.clone(), DataType::Int64);
            Some(cast(cast(whole, seconds), own.clone()))
        }
        _ => None,
    }
}

/// The time zone work of a cast that depends on it.
fn conversion(from: &Expr, to: &FieldRef, schema: &DFSchema) -> Option<Work> {
    let from = type_of(from, schema)?;
    let to = to.data_type();
    match from {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if is_local(to) => {
            Some(Work::Read { is_lenient: false })
        }
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None) if is_local(to) => {
            Some(Work::Set { is_lenient: false })
        }
        DataType::Timestamp(_, Some(_)) if is_local(&from) => {
            matches!(to, DataType::Timestamp(_, None)).then_some(Work::Shown)
        }
        _ => None,
    }
}
