//! Which column of which table a column of a result is: [`origin`], for its description ([`described`]) and its type in
//! protocols. A column that is computed is none, whatever its name.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Column;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan};

use crate::events::table::{OWN_EVENTS, RESOLVE_PERSON};
use weir_event::dictionary;
use weir_event::dictionary::{EVENTS, SESSIONS, Table};

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
    let name = |plan: &LogicalPlan, at: usize| Some(plan.schema().fields().get(at)?.name().clone());
    loop {
        let (input, expression) = match plan {
            LogicalPlan::TableScan(scan) => {
                let table = match scan.table_name.table() {
                    OWN_EVENTS => &EVENTS,
                    name => dictionary::table(name)?,
                };
                return Some((table, name(plan, at)?));
            }
            // Sessions are a plan over events.
            LogicalPlan::SubqueryAlias(alias)
                if alias.alias.table() == SESSIONS.name && is_whole(&SESSIONS, plan) =>
            {
                return Some((&SESSIONS, name(plan, at)?));
            }
            LogicalPlan::SubqueryAlias(alias) => (&alias.input, None),
            LogicalPlan::Filter(filter) => (&filter.input, None),
            LogicalPlan::Sort(sort) => (&sort.input, None),
            LogicalPlan::Limit(limit) => (&limit.input, None),
            LogicalPlan::Repartition(parts) => (&parts.input, None),
            LogicalPlan::Distinct(distinct) => (distinct.input(), None),
            LogicalPlan::Projection(projection) => (&projection.input, projection.expr.get(at)),
            LogicalPlan::Aggregate(aggregate) => {
                (&aggregate.input, Some(aggregate.group_expr.get(at)?))
            }
            LogicalPlan::Window(window) => {
                if at >= window.input.schema().fields().len() {
                    return None;
                }
                (&window.input, None)
            }
            LogicalPlan::Join(join) => {
                let left = join.left.schema().fields().len();
                match join.join_type {
                    JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                        (&join.right, None)
                    }
                    _ if at < left => (&join.left, None),
                    JoinType::LeftMark => return None,
                    _ => {
                        at -= left;
                        (&join.right, None)
                    }
                }
            }
            _ => return None,
        };
        if let Some(expression) = expression {
            at = input.schema().maybe_index_of_column(column(expression, input)?)?;
        }
        if at >= input.schema().fields().len() {
            return None;
        }
        plan = input;
    }
}

/// Whether a plan has the columns of a table, so that its alias is not a user's for something else.
fn is_whole(table: &Table, plan: &LogicalPlan) -> bool {
    let names = plan.schema().fields().iter().map(|field| field.name().as_str());
    table.sql_columns().map(|column| column.name).eq(names)
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
