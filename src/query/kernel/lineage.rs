//! Which column of which table a column of a result is: [`origin`], for its description ([`described`]) and its type in
//! protocols; [`origin_of_both`] for two of one row. A column that is computed is none, whatever its name.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Column;
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan, TableScan};

use crate::events::resolve_person::RESOLVE_PERSON;
use crate::events::table::OWN_EVENTS;
use weir_event::dictionary;
use weir_event::dictionary::{EVENTS, PERSONS, SESSIONS, Table, property_key};

/// The schema of a result, whose columns have the descriptions of the columns that they are.
pub(crate) fn described(plan: &LogicalPlan, schema: &SchemaRef) -> SchemaRef {
    let text = |at| origin(plan, at).and_then(|(table, name)| table.sql_description(&name));
    let field = |(at, field): (usize, &Arc<Field>)| match text(at) {
        Some(text) => Arc::new(dictionary::with_description(field, text)),
        None => Arc::clone(field),
    };
    let fields: Vec<_> = schema.fields().iter().enumerate().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The table and the name of the column at a position of a plan's output. A loop, as plans are deep.
pub(crate) fn origin(mut plan: &LogicalPlan, mut at: usize) -> Option<(&'static Table, String)> {
    loop {
        match step(plan, at)? {
            Step::Table(table, name) => return Some((table, name)),
            Step::Input(_, input, place) => (plan, at) = (input, place),
        }
    }
}

/// The table whose rows two columns of a plan's output come from, the same row in each, and their names in it.
pub(crate) fn origin_of_both(
    mut plan: &LogicalPlan,
    [mut first, mut second]: [usize; 2],
) -> Option<(&'static Table, [String; 2])> {
    loop {
        match (step(plan, first)?, step(plan, second)?) {
            (Step::Table(table, one), Step::Table(_, other)) => return Some((table, [one, other])),
            (Step::Input(side, input, one), Step::Input(other_side, _, other))
                if side == other_side =>
            {
                (plan, first, second) = (input, one, other);
            }
            _ => return None,
        }
    }
}

/// Where a column of a plan's output comes from.
enum Step<'p> {
    /// A table, and the name of its column.
    Table(&'static Table, String),
    /// An input, by its number, and the position of the column in its output.
    Input(usize, &'p LogicalPlan, usize),
}

fn step(plan: &LogicalPlan, at: usize) -> Option<Step<'_>> {
    let name = |plan: &LogicalPlan| Some(plan.schema().fields().get(at)?.name().clone());
    let (side, input, place, expression) = match plan {
        // The rows so far of a recursive query, whatever its name.
        LogicalPlan::TableScan(scan) if is_of_recursion(scan) => return None,
        LogicalPlan::TableScan(scan) => {
            let table = match scan.table_name.table() {
                OWN_EVENTS => &EVENTS,
                name => dictionary::table(name)?,
            };
            return Some(Step::Table(table, name(plan)?));
        }
        LogicalPlan::SubqueryAlias(alias) => match planned(alias.alias.table(), plan) {
            Some(table) => return Some(Step::Table(table, name(plan)?)),
            None => (0, &alias.input, at, None),
        },
        LogicalPlan::Filter(filter) => (0, &filter.input, at, None),
        LogicalPlan::Sort(sort) => (0, &sort.input, at, None),
        LogicalPlan::Limit(limit) => (0, &limit.input, at, None),
        LogicalPlan::Repartition(parts) => (0, &parts.input, at, None),
        LogicalPlan::Distinct(Distinct::All(input)) => (0, input, at, None),
        LogicalPlan::Distinct(Distinct::On(on)) => {
            (0, &on.input, at, Some(on.select_expr.get(at)?))
        }
        LogicalPlan::Projection(projection) => {
            (0, &projection.input, at, Some(projection.expr.get(at)?))
        }
        LogicalPlan::Aggregate(aggregate) => {
            (0, &aggregate.input, at, Some(aggregate.group_expr.get(at)?))
        }
        LogicalPlan::Window(window) => (0, &window.input, at, None),
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    (1, &join.right, at, None)
                }
                _ if at < left => (0, &join.left, at, None),
                JoinType::LeftMark => return None,
                _ => (1, &join.right, at - left, None),
            }
        }
        _ => return None,
    };
    let place = match expression {
        Some(expression) => input.schema().maybe_index_of_column(column(expression, input)?)?,
        None => place,
    };
    (place < input.schema().fields().len()).then_some(Step::Input(side, input, place))
}

fn is_of_recursion(scan: &TableScan) -> bool {
    let table = source_as_provider(&scan.source);
    table.is_ok_and(|table| table.is::<CteWorkTable>())
}

/// The table with this name that is a plan: sessions over events, and persons with promoted columns over those without.
/// `None` if the plan has other columns, so that the name is a user's for something else.
fn planned(name: &str, plan: &LogicalPlan) -> Option<&'static Table> {
    let table = [&SESSIONS, &PERSONS].into_iter().find(|table| table.name == name)?;
    let mut names = plan.schema().fields().iter().map(|field| field.name().as_str());
    let is_own = table.sql_columns().all(|column| names.next() == Some(&*column.name));
    let is_rest = |name: &str| table.name == PERSONS.name && property_key(name).is_some();
    (is_own && names.all(is_rest)).then_some(table)
}

/// The column that an expression is, under whatever name.
fn column<'e>(mut expression: &'e Expr, input: &LogicalPlan) -> Option<&'e Column> {
    loop {
        expression = match expression {
            Expr::Column(column) => return Some(column),
            Expr::Alias(alias) => &alias.expr,
            // The same instant in another time zone.
            Expr::Cast(Cast { expr, field }) if is_time(field.data_type()) => {
                let Expr::Column(column) = &**expr else { return None };
                let from = input.schema().maybe_index_of_column(column)?;
                return is_time(input.schema().field(from).data_type()).then_some(column);
            }
            // The person as of now is what the description says.
            Expr::ScalarFunction(call) if call.func.name() == RESOLVE_PERSON => {
                call.args.first()?
            }
            _ => return None,
        };
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..))
}

#[cfg(test)]
mod tests;
