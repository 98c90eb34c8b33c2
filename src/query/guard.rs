//! Limits of memory and time within queries, where DataFusion has none.
//!
//! DataFusion accounts for the memory of operators (sorts, joins, groups), not for the values that functions produce
//! nor for the batches between operators, and it does not interrupt a function. This module adds the rest:
//!
//! - [`check`]: refuses a statement of which the logical plan alone would take too much, such as one with a call in an
//!   argument of a table function in FROM, which is evaluated during planning; and a statement with a clause that the
//!   planner would silently drop (`ignored`), such as `SAMPLE`.
//! - [`rule`](GuardFunctions): an analyzer rule that wraps every function of a plan in one that enforces limits
//!   (`function`, by the classes of `functions`) before the plan is optimized, so that constant folding is limited too.
//!   Casts, `||` and costly matches become such functions where they produce large values or take long. Refused are
//!   calls of aggregate and window functions that no operator limits (`aggregates`), and expressions that become too
//!   large when they are simplified (`expanded`).
//! - `batches`: bounds the bytes of the batches that pass from one operator to the next.
//! - [`batch_rows`]: runs a plan with large constants in batches of fewer rows.
//! - [`Running`]: cancels a function once the client of its query is gone, or the query's time is over. A single call
//!   that takes long does not block a query thread ([`aside`](crate::guard::aside::aside)).

mod aggregates;
pub(super) mod aside;
mod batches;
mod bounds;
mod compact;
pub mod complexity;
mod expanded;
mod function;
mod functions;
mod held;
mod ignored;
mod in_lists;
pub(super) mod operators;
pub(super) mod passing;
mod running;
mod sizes;
mod statement;
mod stored;
#[cfg(test)]
mod tests;
pub mod watched;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

pub(super) use crate::guard::running::{Running, StopFunctions};
pub(super) use crate::guard::statement::check;

pub(super) use crate::guard::batches::{BOUND_BATCHES, bounded_batches};

use crate::guard::batches::{BATCH_BYTES, BoundBatches};
use crate::guard::function::Guarded;
use crate::guard::functions::{Class, class};
use crate::guard::stored::Stored;
use crate::kernel::rewritten::{columns_of, map_named};

/// Minimum rows of a batch, whatever constants a plan has.
const BATCH_ROWS_MIN: usize = 16;

/// Shorter constants take no more memory than a column of numbers.
const LARGE_CONSTANT_BYTES: usize = 128;

/// Memory pools of all queries, besides the pool of operators that account for their memory. They are separate, because
/// operators that can spill take all free memory of their pool and give nothing back to others.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    /// For values that functions produce.
    pub(super) values: Arc<dyn MemoryPool>,
    /// For rows that are buffered until the end: of results, and of windows.
    pub(super) rows: Arc<dyn MemoryPool>,
}

impl Pools {
    /// Half of the operators' memory for values, and as much as theirs for rows.
    pub(super) fn beside(operators_bytes: usize) -> Self {
        Self {
            values: Arc::new(GreedyMemoryPool::new(operators_bytes / 2)),
            rows: Arc::new(GreedyMemoryPool::new(operators_bytes)),
        }
    }
}

/// Adds the limits to a session, before its functions and rules are used.
pub(super) fn with_limits(builder: SessionStateBuilder, pools: &Pools) -> SessionStateBuilder {
    let (values, rows) = (Arc::clone(&pools.values), Arc::clone(&pools.rows));
    builder
        .with_analyzer_rule(Arc::new(GuardFunctions { pool: values }))
        .with_physical_optimizer_rule(Arc::new(BoundBatches { pool: rows }))
}

/// Removes from a session the functions that our SQL does not offer.
///
/// # Errors
///
/// The session refuses to remove one.
pub(super) fn without_absent(mut state: SessionState) -> Result<SessionState> {
    for name in functions::absent() {
        state.deregister_udf(name)?;
    }
    for name in functions::HIGHER_ORDER_ABSENT {
        state.deregister_higher_order_function(name)?;
    }
    Ok(state)
}

/// Rows per batch for this plan, at most `rows`: a constant is copied for each row.
///
/// # Errors
///
/// The plan cannot be walked.
pub(super) fn batch_rows(plan: &LogicalPlan, rows: usize) -> Result<usize> {
    let mut bytes: usize = 0;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                // Items of an IN list are only compared with, not copied.
                if matches!(expression, Expr::InList(_)) {
                    return Ok(TreeNodeRecursion::Jump);
                }
                if let Expr::Literal(value, _) = expression {
                    let size = value.size();
                    if size >= LARGE_CONSTANT_BYTES {
                        bytes = bytes.saturating_add(size);
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let most = BATCH_BYTES.checked_div(bytes).unwrap_or(rows);
    Ok(most.max(BATCH_ROWS_MIN).min(rows))
}

/// The functions that a plan calls, without their limits; one that is called twice may come twice.
///
/// # Errors
///
/// The plan cannot be walked.
pub(super) fn called_functions(plan: &LogicalPlan) -> Result<Vec<Arc<ScalarUDF>>> {
    let mut called = Vec::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::ScalarFunction(call) = part {
                    let inner = unguarded(&call.func).cloned().map(Arc::new);
                    called.push(inner.unwrap_or_else(|| Arc::clone(&call.func)));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(called)
}

/// Analyzer rule that wraps the functions of a plan in limits. It must be the last rule that creates functions, except
/// the one that replaces a read of numbers by a `coalesce` of columns, and must come before the first that evaluates
/// any.
#[derive(Debug)]
struct GuardFunctions {
    pool: Arc<dyn MemoryPool>,
}

impl AnalyzerRule for GuardFunctions {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            let schema = columns_of(&plan)?;
            check_subqueries(&plan)?;
            expanded::check(&plan)?;
            let stored = Stored::of(&plan)?;
            map_named(plan, |expression| {
                expression.transform_up(|expression| {
                    aggregates::check(&expression)?;
                    let expression = in_lists::exact(expression).data;
                    let bounded = operators::bounded(expression, &schema, &stored)?;
                    bounded.transform_data(|expression| guard(expression, &self.pool))
                })
            })
        })
        .map(|plan| plan.data)
    }

    fn name(&self) -> &str {
        "guard_functions"
    }
}

/// # Errors
///
/// `IN (SELECT ...)` or `EXISTS` is a value of the result, of a group or of an order: only conditions become joins.
fn check_subqueries(plan: &LogicalPlan) -> Result<()> {
    use LogicalPlan::{Aggregate, Projection, Sort, Window};
    if !matches!(plan, Projection(_) | Aggregate(_) | Window(_) | Sort(_)) {
        return Ok(());
    }
    let is_of_rows = |own: &Expr| Ok(matches!(own, Expr::InSubquery(_) | Expr::Exists(_)));
    let mut is_there = false;
    plan.apply_expressions(|expression| {
        is_there |= expression.exists(is_of_rows)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    match is_there {
        true => Err(DataFusionError::Plan(
            "IN (SELECT ...), IN COHORT and EXISTS are conditions of WHERE and HAVING; among the columns, join the rows \
             of the other SELECT and look whether there are any"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

/// The function in limits; `None` if `function` has none.
pub(super) fn unguarded(function: &ScalarUDF) -> Option<&ScalarUDF> {
    function.inner().downcast_ref::<Guarded>().map(Guarded::inner)
}

/// A function with its limits, of which [`unguarded`] is `inner`.
///
/// # Errors
///
/// Functions of this name have no limits.
pub(super) fn guarded_function(
    inner: ScalarUDF,
    values: &Arc<dyn MemoryPool>,
) -> Result<ScalarUDF> {
    match operators::rule(&inner).map_or_else(|| class(inner.name()), Some) {
        Some(Class::Guarded(rule)) => {
            Ok(ScalarUDF::new_from_impl(Guarded::new(Arc::new(inner), rule, values)))
        }
        _ => Err(DataFusionError::Plan(format!("{} has no limits", inner.name()))),
    }
}

/// `expression` with limits around all of its functions.
///
/// # Errors
///
/// It calls a function that our SQL does not offer.
fn guarded(expression: Expr, pool: &Arc<dyn MemoryPool>) -> Result<Transformed<Expr>> {
    expression.transform_up(|expression| guard(expression, pool))
}

fn guard(expression: Expr, pool: &Arc<dyn MemoryPool>) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = expression else { return Ok(Transformed::no(expression)) };
    if call.func.inner().is::<Guarded>() {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    match operators::rule(&call.func).map_or_else(|| class(call.func.name()), Some) {
        Some(Class::Guarded(rule)) => {
            let function = Guarded::new(call.func, rule, pool);
            let func = Arc::new(ScalarUDF::new_from_impl(function));
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args: call.args })))
        }
        Some(Class::Absent) => {
            let name = call.func.name();
            Err(DataFusionError::Plan(format!("there is no function {name}")))
        }
        // Functions that are not DataFusion's are ours, and produce truth values and ids.
        Some(Class::Plain) | None => Ok(Transformed::no(Expr::ScalarFunction(call))),
    }
}
