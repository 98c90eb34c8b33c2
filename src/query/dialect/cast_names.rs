//! Distinct column names for casts. DataFusion omits casts from column names, so that it refuses
//! `sum(a), sum(a::double)` as two columns of the same name. [`is_needed`] detects that error, and [`rewrite`] wraps
//! each cast into a constant CASE with its type, which is part of the column name and is removed by the optimizer.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{CaseWhen, Expr, Select, Value, VisitorMut};

use crate::dialect::item_names::ItemNames;
use crate::dialect::statements::{query_in, take};
use crate::dialect::walk::walk_mut;

/// Whether a statement was refused because of two columns of the same name.
pub(crate) fn is_needed(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => {
            matches!(**error, SchemaError::DuplicateUnqualifiedField { .. })
        }
        // This error has no variant of its own.
        DataFusionError::Plan(why) => {
            why.starts_with("Projections require unique expression names")
        }
        _ => false,
    }
}

/// Makes the type of each cast part of the column name.
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Some(query) = query_in(statement) {
        let _ = walk_mut(query, &mut Casts::default());
    }
}

#[derive(Default)]
struct Casts {
    names: ItemNames,
}

impl VisitorMut for Casts {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.names.enter(select);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.names.leave(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let Expr::Cast { data_type, .. } = expression else { return ControlFlow::Continue(()) };
        let name = || {
            let text = Value::SingleQuotedString(data_type.to_string());
            Expr::Value(text.into())
        };
        let (operand, condition) = (Some(Box::new(name())), name());
        let result = take(expression);
        *expression = Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand,
            conditions: vec![CaseWhen { condition, result }],
            else_result: None,
        };
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::{is_needed, rewrite};

    #[tokio::test]
    async fn two_casts_of_one_column_can_be_planned() {
        let state = SessionContext::new().state();
        for (sql, columns) in [
            (
                "SELECT sum(a), sum(a::double) FROM (SELECT 1 AS a) AS t",
                Some(["sum(a)", "sum(a::DOUBLE)"]),
            ),
            (
                "SELECT min(a::double) + 1, min(a::bigint) + 2 FROM (SELECT 1 AS a)",
                Some(["min(a::DOUBLE) + 1", "min(a::BIGINT) + 2"]),
            ),
            (
                "SELECT a::double, try_cast(a AS bigint) FROM (SELECT 1 AS a)",
                Some(["a::DOUBLE", "TRY_CAST(a AS BIGINT)"]),
            ),
            ("SELECT a AS b, a AS b FROM (SELECT 1 AS a)", None),
        ] {
            let mut statement = state.sql_to_statement(sql, &Default::default()).unwrap();
            let refused = state.statement_to_plan(statement.clone()).await.unwrap_err();
            assert!(is_needed(&refused), "{sql}: {refused}");
            rewrite(&mut statement);
            let planned = state.statement_to_plan(statement).await.ok();
            let names = planned.as_ref().map(|plan| plan.schema().field_names());
            let last = |name: &String| {
                name.rsplit_once(").").map_or_else(|| name.clone(), |(_, own)| own.to_owned())
            };
            let names: Option<Vec<String>> = names.map(|names| names.iter().map(last).collect());
            let columns = columns.map(|columns| columns.map(str::to_owned).to_vec());
            assert_eq!(names, columns, "{sql}");
        }
        let statement = state.sql_to_statement("SELECT b FROM t", &Default::default()).unwrap();
        assert!(!is_needed(&state.statement_to_plan(statement).await.unwrap_err()));
    }
}
