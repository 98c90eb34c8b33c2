//! Determines which columns of a plan are unchanged columns of tables: [`Stored`]. Their texts are limited by the size
//! of events; texts that functions return can be much longer.

use std::collections::HashSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Alias, Cast};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::guard::operators;

/// The stored columns among those to which the expressions of one operator refer.
#[derive(Debug)]
pub(super) enum Stored {
    /// All columns: the operator scans a table.
    All,
    Some(HashSet<Column>),
}

impl Stored {
    /// The stored columns of the inputs of `plan`, if it has expressions for which that matters.
    ///
    /// # Errors
    ///
    /// The plan cannot be walked.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut matters = false;
        plan.apply_expressions(|expression| {
            expression.apply(|expression| {
                matters |= operators::is_any_match(expression);
                Ok(if matters { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        if matches!(plan, LogicalPlan::TableScan(_)) {
            return Ok(Self::All);
        }
        let inputs = plan.inputs().into_iter().filter(|_| matters);
        let columns = inputs.flat_map(|input| {
            let stored = move |at: &usize| is_stored(input, *at);
            let columns = (0..input.schema().fields().len()).filter(stored);
            columns.map(|at| Column::from(input.schema().qualified_field(at)))
        });
        Ok(Self::Some(columns.collect()))
    }

    /// Whether an expression is such a column, or a cast of one.
    pub(super) fn has(&self, expression: &Expr) -> bool {
        match (self, expression) {
            (_, Expr::Cast(Cast { expr, .. })) => self.has(expr),
            (Self::All, Expr::Column(_)) => true,
            (Self::Some(columns), Expr::Column(column)) => columns.contains(column),
            _ => false,
        }
    }
}

/// Whether an output column of a plan is a stored one. False if that cannot be determined easily.
fn is_stored(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::Filter(filter) => is_stored(&filter.input, at),
        LogicalPlan::Sort(sort) => is_stored(&sort.input, at),
        LogicalPlan::Limit(limit) => is_stored(&limit.input, at),
        LogicalPlan::SubqueryAlias(alias) => is_stored(&alias.input, at),
        LogicalPlan::Projection(projection) => {
            let expression = projection.expr.get(at);
            let place = expression.and_then(|one| place(one, projection.input.schema()));
            place.is_some_and(|at| is_stored(&projection.input, at))
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            let has_both = join.schema.fields().len()
                == left.saturating_add(join.right.schema().fields().len());
            match at.checked_sub(left) {
                _ if !has_both => false,
                Some(at) => is_stored(&join.right, at),
                None => is_stored(&join.left, at),
            }
        }
        _ => false,
    }
}

/// The index of the column to which an expression refers.
fn place(expression: &Expr, schema: &DFSchema) -> Option<usize> {
    match expression {
        Expr::Alias(Alias { expr, .. }) | Expr::Cast(Cast { expr, .. }) => place(expr, schema),
        Expr::Column(column) => schema.maybe_index_of_column(column),
        _ => None,
    }
}
