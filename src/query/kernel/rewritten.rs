//! Rewrites the expressions of a plan node while preserving their output names: [`map_named`]. The rewrite itself is
//! passed in by the calling rule.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The columns that a node's expressions may use: those of its inputs, and for a scan those of its table.
///
/// # Errors
///
/// The table has two columns of one name.
pub(crate) fn columns_of(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut columns = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        let name = scan.table_name.clone();
        columns.merge(&DFSchema::try_from_qualified_schema(name, &scan.source.schema())?);
    }
    Ok(columns)
}

/// The node with each of its expressions rewritten under its old name.
pub(crate) fn map_named(
    plan: LogicalPlan,
    mut rewrite: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let mut named = |expression: Expr| {
        let name = names.save(&expression);
        Ok(rewrite(expression)?.update_data(|expression| name.restore(expression)))
    };
    plan.map_expressions(|expression| match expression {
        // A grouping set cannot have a name; its inner expressions have.
        Expr::GroupingSet(_) => expression.map_children(&mut named),
        _ => named(expression),
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::tree_node::{Transformed, TreeNode};
    use datafusion::logical_expr::{
        Expr, LogicalPlan, LogicalPlanBuilder, cast, rollup, table_scan,
    };
    use datafusion::prelude::col;

    use super::map_named;

    /// Goal: expressions inside a grouping set are rewritten, and the aggregate still has the set itself.
    #[test]
    fn sets_of_groups_stay_sets() {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
        let table = table_scan(Some("t"), &schema, None).unwrap().build().unwrap();
        let groups = vec![rollup(vec![col("a")])];
        let plan = LogicalPlanBuilder::from(table).aggregate(groups, Vec::<Expr>::new());
        let rewritten = map_named(plan.unwrap().build().unwrap(), |expression| {
            expression.transform_up(|part| match part {
                Expr::Column(_) => Ok(Transformed::yes(cast(part, DataType::Float64))),
                other => Ok(Transformed::no(other)),
            })
        });
        let LogicalPlan::Aggregate(found) = rewritten.unwrap().data else { panic!("an aggregate") };
        let [set @ Expr::GroupingSet(_)] = &found.group_expr[..] else { panic!("{found:?}") };
        assert!(set.to_string().contains("CAST("), "{set}");
    }
}
