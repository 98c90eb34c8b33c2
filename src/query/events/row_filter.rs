//! Decides which filters a scan may evaluate while it reads: [`is_row_filter`].
//!
//! A scan reads rows of other projects, and deleted ones. The error of an expression that fails on a row shows the row,
//! so only expressions that cannot fail are pushed down into it. Function calls are not, except our own quick
//! conditions: a scan filters a row group in one step, during which a query cannot be cancelled.

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use crate::filter::condition;

/// Columns for which a second read, for the filter besides the query, costs more than the filter saves.
const WIDE: [&str; 2] = ["properties", "elements_chain"];

/// Columns with long texts, each of which is in few rows.
const KEYS: [&str; 4] = ["uuid", "distinct_id", "person_id", "session_id"];

/// Whether an expression has a value for every row and is cheap: comparisons of columns with constants, our own quick
/// conditions ([`condition::is_quick`]), and their combinations by AND, OR and NOT. Planning has given operands the
/// same type; a cast may fail.
pub(crate) fn is_row_filter(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let is_kind = if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        is_comparison(*binary.op()) || matches!(binary.op(), Operator::And | Operator::Or)
    } else if let Some(column) = expression.downcast_ref::<Column>() {
        !WIDE.contains(&column.name())
    } else if let Some(function) = expression.downcast_ref::<ScalarFunctionExpr>() {
        condition::is_quick(function.fun())
    } else {
        expression.is::<Literal>()
            || expression.is::<InListExpr>()
            || expression.is::<IsNullExpr>()
            || expression.is::<IsNotNullExpr>()
            || expression.is::<NotExpr>()
            || expression.is::<LikeExpr>()
    };
    is_kind && expression.children().into_iter().all(is_row_filter)
}

/// Whether it is cheaper to filter rows during the read, for a query that reads these columns. Values of matching rows
/// are decoded in pieces, which costs more for each row than to decode a column of numbers or of repeated texts, and
/// less than to decode long texts that all differ.
pub(crate) fn pays<'a>(mut columns: impl Iterator<Item = &'a str>) -> bool {
    columns.any(|name| WIDE.contains(&name) || KEYS.contains(&name))
}

fn is_comparison(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, BooleanArray};
    use arrow::datatypes::DataType;
    use datafusion::common::DFSchema;
    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
    use datafusion::datasource::empty::EmptyTable;
    use datafusion::logical_expr::LogicalPlan;
    use datafusion::prelude::SessionContext;

    use super::{is_row_filter, pays};
    use crate::filter::condition;
    use crate::filter::condition::{Call, Pace};
    use weir_event::schema::events_schema;

    /// Goal: no filter is pushed down into a scan that may fail on a row, call a function, or read a wide column twice.
    /// Method: conditions as planning leaves them.
    #[tokio::test]
    async fn only_cheap_comparisons_are_row_filters() {
        let context = SessionContext::new();
        let table = EmptyTable::new(events_schema());
        context.register_table("events", Arc::new(table)).unwrap();
        for (condition, expected) in [
            ("event = 'a'", true),
            ("'a' <> event", true),
            ("timestamp >= TIMESTAMP '2026-01-01T00:00:00Z'", true),
            ("p_revenue BETWEEN 1.5 AND 2.5", true),
            ("event IN ('a', 'b') AND distinct_id IS NOT NULL", true),
            ("NOT (event = 'a' OR p_revenue < 3.0)", true),
            ("event LIKE 'a%'", true),
            ("event IS DISTINCT FROM 'a'", true),
            ("CAST(event AS BIGINT) = 1", false),
            ("event = 'a' AND CAST(event AS BIGINT) = 1", false),
            ("lower(event) = 'a'", false),
            ("p_revenue + 1.0 > 2.0", false),
            ("CASE event WHEN 'a' THEN p_revenue ELSE 1.0 / p_revenue END > 1.0", false),
            ("event IN (lower('A'), lower(distinct_id))", false),
            ("properties LIKE '%a%'", false),
            ("elements_chain IS NULL", false),
        ] {
            let sql = format!("SELECT uuid FROM events WHERE {condition}");
            let plan = context.sql(&sql).await.unwrap().into_optimized_plan().unwrap();
            let mut found = None;
            plan.apply(|node| {
                if let LogicalPlan::Filter(filter) = node {
                    let schema = filter.input.schema();
                    let predicate = filter.predicate.clone();
                    found = Some(context.create_physical_expr(predicate, schema)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
            let physical = found.expect("a filter");
            assert_eq!(is_row_filter(&physical), expected, "{condition}");
        }
    }

    #[test]
    fn narrow_columns_are_read_as_a_whole() {
        for (columns, expected) in [
            (&["event", "timestamp", "p_$browser"][..], false),
            (&["event", "properties"], true),
            (&["distinct_id", "timestamp"], true),
            (&[], false),
        ] {
            assert_eq!(pays(columns.iter().copied()), expected, "{columns:?}");
        }
    }

    #[test]
    fn conditions_of_ours_are_row_filters_if_they_are_quick() {
        let schema = events_schema();
        let context = SessionContext::new();
        for (column, pace, expected) in [
            ("event", Pace::Quick, true),
            ("event", Pace::Steady, false),
            ("properties", Pace::Quick, false),
        ] {
            let name = format!("{column} {pace:?}");
            let test = |column: &ArrayRef, _: Call<'_>| Ok(BooleanArray::new_null(column.len()));
            let of_column = condition::of_column("matches", column, DataType::Utf8View, pace, test);
            let schema = DFSchema::try_from(Arc::clone(&schema)).unwrap();
            let physical = context.create_physical_expr(of_column, &schema).unwrap();
            assert_eq!(is_row_filter(&physical), expected, "{name}");
        }
    }
}
