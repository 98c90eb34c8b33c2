//! `count(DISTINCT person_id)` of events counts numbers of four bytes: [`of_numbers`]. A person's number
//! ([`PersonNumbers`]) stands for its uuid, so the count is the same, and neither hash tables nor exchanges between
//! threads move texts of 36 bytes for each row.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Aggregate;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::ExprSchemable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::expr_rewriter::NamePreserver;

use crate::query::events::OWN_EVENTS;
use crate::query::events::RESOLVE_PERSON;
use crate::query::person_numbers::PersonNumbers;

/// The column of the table with the person of an event.
const PERSON_ID: &str = "person_id";

/// A plan of a view with each count of distinct persons of events as a count of their numbers. Columns have the names
/// and types that they had.
///
/// # Errors
///
/// A bug: the changed plan is none.
pub(super) fn of_numbers(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let Some(persons) = state.config().get_extension::<PersonNumbers>() else { return Ok(plan) };
    // Those of the view would be kept as long as the view.
    let persons = Arc::new(persons.anew());
    let changed = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Aggregate(aggregate) => counted(aggregate, &persons),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

fn counted(aggregate: Aggregate, persons: &Arc<PersonNumbers>) -> Result<Transformed<LogicalPlan>> {
    let input = &aggregate.input;
    if !aggregate.aggr_expr.iter().any(|expression| counts_persons(expression, input)) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let names = NamePreserver::new_for_projection();
    let number = |expression: &Expr| {
        let name = names.save(expression);
        let changed = expression.clone().transform_up(|part| match part {
            Expr::AggregateFunction(mut call) => {
                call.params.args = vec![persons.of_event(call.params.args)];
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(changed.data))
    };
    let counts =
        aggregate.aggr_expr.iter().map(|expression| match counts_persons(expression, input) {
            true => number(expression),
            false => Ok(expression.clone()),
        });
    let counts = counts.collect::<Result<Vec<_>>>()?;
    let groups = aggregate.group_expr.clone();
    let aggregate = Aggregate::try_new(Arc::clone(input), groups, counts)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// Whether this is a count of the distinct persons of events.
fn counts_persons(expression: &Expr, input: &LogicalPlan) -> bool {
    let expression = match expression {
        Expr::Alias(alias) => &*alias.expr,
        expression => expression,
    };
    let Expr::AggregateFunction(call) = expression else { return false };
    let [Expr::Column(column)] = call.params.args.as_slice() else { return false };
    let is_text = || {
        let counted = Expr::Column(column.clone());
        counted.get_type(input.schema()).is_ok_and(|found| found == DataType::Utf8View)
    };
    call.func.name() == "count"
        && call.params.distinct
        && is_person_of_event(input, column)
        && is_text()
}

/// Whether a column of a plan is the person of an event, as it is in the table.
fn is_person_of_event(plan: &LogicalPlan, column: &Column) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => {
            scan.table_name.table() == OWN_EVENTS && column.name == PERSON_ID
        }
        LogicalPlan::Projection(projection) => {
            let at = projection.schema.maybe_index_of_column(column);
            let expression = at.and_then(|at| projection.expr.get(at));
            match expression.map(|expression| expression.clone().unalias()) {
                Some(Expr::Column(inner)) => is_person_of_event(&projection.input, &inner),
                Some(Expr::ScalarFunction(call)) => call.func.name() == RESOLVE_PERSON,
                _ => false,
            }
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let at = alias.schema.maybe_index_of_column(column);
            let inner = at.map(|at| Column::from(alias.input.schema().qualified_field(at)));
            inner.is_some_and(|inner| is_person_of_event(&alias.input, &inner))
        }
        LogicalPlan::Filter(filter) => is_person_of_event(&filter.input, column),
        LogicalPlan::Sort(sort) => is_person_of_event(&sort.input, column),
        LogicalPlan::Limit(limit) => is_person_of_event(&limit.input, column),
        LogicalPlan::Join(join) => [&join.left, &join.right].into_iter().any(|side| {
            side.schema().maybe_index_of_column(column).is_some()
                && is_person_of_event(side, column)
        }),
        _ => false,
    }
}
