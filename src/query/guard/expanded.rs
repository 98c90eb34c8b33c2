//! Limits how large expressions become when they are simplified: [`check`]. DataFusion duplicates some operands, such
//! as those of `coalesce`, which becomes a CASE. If such functions are nested, the size doubles at each level, and a
//! line of SQL would exceed the memory.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Maximum nodes of the expressions of one plan operator. Each takes some microseconds of planning.
const PARTS_MAX: usize = 1 << 15;

/// Factor for an argument of those functions: it is duplicated in a CASE, and for each copy the planner determines
/// nullability by visiting all of its nodes.
const FOR_NULLS: usize = 4;

/// Functions that become a CASE in which their arguments are duplicated.
const WRITTEN_TWICE: [&str; 3] = ["coalesce", "nvl", "nvl2"];

/// # Errors
///
/// The expressions of the operator become too large.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut parts = 0_usize;
    plan.apply_expressions(|expression| {
        parts = parts.saturating_add(size(expression));
        Ok(TreeNodeRecursion::Continue)
    })?;
    match parts > PARTS_MAX {
        false => Ok(()),
        true => Err(DataFusionError::Plan(format!(
            "with coalesce, if, CASE and BETWEEN written out, the expressions have more than {PARTS_MAX} parts; fewer of them \
             may stand in each other"
        ))),
    }
}

/// Upper bound of the nodes of an expression after simplification.
fn size(expression: &Expr) -> usize {
    let times = |own: &Expr, times: usize| size(own).saturating_mul(times);
    match expression {
        Expr::ScalarFunction(call) if WRITTEN_TWICE.contains(&call.func.name()) => {
            call.args.iter().fold(1, |parts, own| parts.saturating_add(times(own, FOR_NULLS)))
        }
        Expr::Between(between) => times(&between.expr, 2)
            .saturating_add(size(&between.low))
            .saturating_add(size(&between.high)),
        // A CASE of truth values is rewritten to a condition, in which each WHEN is repeated for the branches after it.
        Expr::Case(case) if case.expr.is_none() => {
            let written = if case.when_then_expr.len() == 1 { 2 } else { 3 };
            let cases = case.when_then_expr.iter().fold(1_usize, |parts, (when, then)| {
                parts.saturating_add(times(when, written)).saturating_add(size(then))
            });
            cases.saturating_add(case.else_expr.as_deref().map_or(0, size))
        }
        other => {
            let mut parts = 1_usize;
            // The closure never fails.
            let _ = other.apply_children(|own| {
                parts = parts.saturating_add(size(own));
                Ok(TreeNodeRecursion::Continue)
            });
            parts
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::functions::expr_fn::{coalesce, lower};
    use datafusion::logical_expr::Expr;
    use datafusion::prelude::{col, lit, when};

    use super::{PARTS_MAX, size};

    fn nested(times: usize, one: impl Fn(Expr) -> Expr) -> usize {
        size(&(0..times).fold(col("a"), |inner, _| one(inner)))
    }

    /// Goal: duplicated operands are counted as such, and other nesting and chains have linear size.
    #[test]
    fn what_is_written_out_counts() {
        let values = |inner: Expr| coalesce(vec![lower(inner), lit("x")]);
        let between = |inner: Expr| inner.between(lit(true), lit(false));
        let condition = |inner: Expr| when(inner, lit(1)).otherwise(lit(2)).expect("a CASE");
        let chosen = |inner: Expr| when(col("b"), lit(1)).otherwise(inner).expect("a CASE");
        for nesting in [nested(15, values), nested(15, between), nested(15, condition)] {
            assert!(nesting > PARTS_MAX, "{nesting}");
        }
        for nesting in [nested(5, values), nested(5, between), nested(5, condition)] {
            assert!(nesting < 5000, "{nesting}");
        }
        assert!(nested(6, values) <= PARTS_MAX && nested(7, values) > PARTS_MAX);
        assert!(nested(49, chosen) < 1000);
        assert!(nested(1900, |inner| inner + lit(1)) < 4000);
        assert_eq!(size(&coalesce(vec![col("a"); 650])), 2601);
    }
}
