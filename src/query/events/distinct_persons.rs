//! Rewrites `count(DISTINCT person_id)` of events to count four-byte numbers: [`of_numbers`]. A person's number
//! ([`PersonNumbers`]) maps one to one to its uuid, so the count is the same, and neither hash tables nor exchanges
//! between threads move 36-byte texts for each row. Numbers are those of one process; over several it counts the sixteen
//! bytes of uuids: [`of_keys`].

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, Projection, ScalarUDF, SubqueryAlias,
};

use crate::events::resolve_person::{RESOLVE_PERSON, person_key};
use crate::events::table::OWN_EVENTS;
use crate::persons::person_numbers::PersonNumbers;

/// The column with the person of an event.
const PERSON_ID: &str = "person_id";

/// Prefix of the names of columns with person numbers.
const NUMBER: &str = "__person_number";

/// A view's plan in which each count of distinct persons of events counts their numbers. Columns keep their names and
/// types.
///
/// # Errors
///
/// The changed plan is invalid: a bug.
pub(crate) fn of_numbers(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let Some(persons) = state.config().get_extension::<PersonNumbers>() else { return Ok(plan) };
    // Numbers added to the view's own instance would stay in memory as long as the view.
    let persons = Arc::new(persons.anew());
    counting(plan, &|_, arguments| persons.of_event(arguments))
}

/// The same, in which each count of distinct persons counts the bytes of their uuids.
///
/// # Errors
///
/// The changed plan is invalid: a bug.
pub(crate) fn of_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    counting(plan, &|resolve, arguments| person_key(resolve).call(arguments))
}

/// What is counted instead of a person: of the function that resolves it, if there is one, and its arguments.
type Counted<'c> = &'c dyn Fn(Option<&ScalarUDF>, Vec<Expr>) -> Expr;

fn counting(plan: LogicalPlan, instead: Counted<'_>) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Aggregate(aggregate) => counted(aggregate, instead),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

fn counted(aggregate: Aggregate, instead: Counted<'_>) -> Result<Transformed<LogicalPlan>> {
    let input = &aggregate.input;
    let counts = |expression: &Expr| counted_person(expression, input).is_some();
    if !aggregate.aggr_expr.iter().any(counts) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let names = NamePreserver::new_for_projection();
    let mut input = aggregate.input.as_ref().clone();
    let mut counts = Vec::with_capacity(aggregate.aggr_expr.len());
    for (at, expression) in aggregate.aggr_expr.iter().enumerate() {
        let Some(person) = counted_person(expression, &aggregate.input) else {
            counts.push(expression.clone());
            continue;
        };
        let column = format!("{NUMBER}_{at}");
        let number = match with_number(&input, person, instead, &column)? {
            Some((numbered, number)) => {
                input = numbered;
                Expr::Column(number)
            }
            None => instead(None, vec![Expr::Column(person.clone())]),
        };
        let name = names.save(expression);
        let changed = expression.clone().transform_up(|part| match part {
            Expr::AggregateFunction(mut call) => {
                call.params.args = vec![number.clone()];
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        counts.push(name.restore(changed.data));
    }
    let groups = aggregate.group_expr.clone();
    let aggregate = Aggregate::try_new(Arc::new(input), groups, counts)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// The plan with an additional column of the person number, computed below the resolution of merges: the number needs
/// neither that look-up for each row nor the text of the uuid. `None` if the person is read as stored.
fn with_number(
    plan: &LogicalPlan,
    person: &Column,
    instead: Counted<'_>,
    name: &str,
) -> Result<Option<(LogicalPlan, Column)>> {
    if let LogicalPlan::Projection(projection) = plan {
        let at = projection.schema.maybe_index_of_column(person);
        let expression = at.and_then(|at| projection.expr.get(at));
        let (input, number) = match expression.map(|expression| expression.clone().unalias()) {
            Some(Expr::Column(inner)) => {
                let Some((input, number)) = with_number(&projection.input, &inner, instead, name)?
                else {
                    return Ok(None);
                };
                (Arc::new(input), Expr::Column(number))
            }
            Some(Expr::ScalarFunction(call)) => {
                let number = instead(Some(&call.func), call.args).alias(name);
                (Arc::clone(&projection.input), number)
            }
            _ => return Ok(None),
        };
        let column = number.qualified_name();
        let columns = projection.expr.iter().cloned().chain([number]).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(columns, input)?);
        return Ok(Some((plan, Column::new(column.0, column.1))));
    }
    for (at, input) in plan.inputs().into_iter().enumerate() {
        let inner = match plan {
            LogicalPlan::SubqueryAlias(alias) => inside(alias, person),
            _ => Some(person.clone()),
        };
        let Some(inner) = inner.filter(|inner| is_person_of_event(input, inner)) else { continue };
        let Some((input, number)) = with_number(input, &inner, instead, name)? else { continue };
        let mut inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
        if let Some(own) = inputs.get_mut(at) {
            *own = input;
        }
        let number = match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                Column::new(Some(alias.alias.clone()), number.name)
            }
            _ => number,
        };
        return Ok(Some((plan.with_new_exprs(plan.expressions(), inputs)?, number)));
    }
    Ok(None)
}

/// The column of an alias's input to which a column of the alias refers.
fn inside(alias: &SubqueryAlias, column: &Column) -> Option<Column> {
    let at = alias.schema.maybe_index_of_column(column)?;
    Some(Column::from(alias.input.schema().qualified_field(at)))
}

/// The column of event persons of which an expression counts the distinct values.
fn counted_person<'a>(expression: &'a Expr, input: &LogicalPlan) -> Option<&'a Column> {
    let expression = match expression {
        Expr::Alias(alias) => &*alias.expr,
        expression => expression,
    };
    let Expr::AggregateFunction(call) = expression else { return None };
    let [Expr::Column(column)] = call.params.args.as_slice() else { return None };
    let is_text = || {
        let counted = Expr::Column(column.clone());
        counted.get_type(input.schema()).is_ok_and(|found| found == DataType::Utf8View)
    };
    let counts = call.func.name() == "count"
        && call.params.distinct
        && is_person_of_event(input, column)
        && is_text();
    counts.then_some(column)
}

/// Whether a column of a plan is the person of an event, unchanged from the table.
fn is_person_of_event(plan: &LogicalPlan, column: &Column) -> bool {
    if plan.schema().maybe_index_of_column(column).is_none() {
        return false;
    }
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
            inside(alias, column).is_some_and(|inner| is_person_of_event(&alias.input, &inner))
        }
        LogicalPlan::Filter(filter) => is_person_of_event(&filter.input, column),
        LogicalPlan::Sort(sort) => is_person_of_event(&sort.input, column),
        LogicalPlan::Limit(limit) => is_person_of_event(&limit.input, column),
        LogicalPlan::Join(join) => {
            [&join.left, &join.right].into_iter().any(|side| is_person_of_event(side, column))
        }
        _ => false,
    }
}
