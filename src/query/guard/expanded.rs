//! How large expressions become when they are simplified: [`check`]. DataFusion writes some operands more than once, such as
//! those of `coalesce`, which becomes a CASE. Where these stand in each other, each writes out once more what is in it, and a
//! line of SQL would take more memory than there is.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Parts of the expressions of one operator of a plan. Each takes some microseconds of planning.
const PARTS_MAX: usize = 1 << 15;

/// What an argument of those functions counts: it stands twice in a CASE, and for each whether it may be null is looked for in
/// all that is in it.
const FOR_NULLS: usize = 4;

/// Functions that become a CASE in which their arguments stand twice.
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

/// How many parts an expression has at most when it is simplified.
fn size(expression: &Expr) -> usize {
    let times = |own: &Expr, times: usize| size(own).saturating_mul(times);
    match expression {
        Expr::ScalarFunction(call) if WRITTEN_TWICE.contains(&call.func.name()) => {
            call.args.iter().fold(1, |parts, own| parts.saturating_add(times(own, FOR_NULLS)))
        }
        Expr::Between(between) => times(&between.expr, 2)
            .saturating_add(size(&between.low))
            .saturating_add(size(&between.high)),
        // One of truth values becomes a condition, in which that of a case stands for those behind it as well.
        Expr::Case(case) if case.expr.is_none() => {
            let written = if case.when_then_expr.len() == 1 { 2 } else { 3 };
            let cases = case.when_then_expr.iter().fold(1_usize, |parts, (when, then)| {
                parts.saturating_add(times(when, written)).saturating_add(size(then))
            });
            cases.saturating_add(case.else_expr.as_deref().map_or(0, size))
        }
        other => {
            let mut parts = 1_usize;
            // Nothing in it fails.
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

    /// Goal: what is written out more than once is counted so, and other nesting and chains are as large as they are long.
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
