//! Restricts `EXPLAIN` and `SHOW` by caller. A physical plan shows the files, row counts and statistics that all
//! projects share, and its metrics reveal whether a value occurs in them; so a project's key gets only the logical
//! plan, which has the content of the query, and whether persons of the project were merged or split. Settings reveal
//! where files are.

use datafusion::common::format::ExplainFormat;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::lit;

use crate::events::distinct_persons;
use crate::guard::Running;
use crate::kernel::admission::Caller;
use crate::kernel::error::QueryError;

/// Value of the first column in the row of the logical plan.
const LOGICAL_PLAN: &str = "logical_plan";

/// The table of the settings, which `SHOW` reads.
const SETTINGS: &str = "df_settings";

/// Whether a plan is that of an `EXPLAIN`.
pub(crate) fn is_explained(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_))
}

/// The query as `caller` may run it: an `EXPLAIN` of any caller but the operator becomes the text of the optimized
/// logical plan. Optimizing may take long.
///
/// # Errors
///
/// More than the logical plan is requested, or the plan cannot be made.
pub(crate) fn permitted(
    query: DataFrame,
    caller: Caller,
    running: Running,
) -> Result<DataFrame, QueryError> {
    if caller == Caller::Operator {
        return Ok(query);
    }
    let (mut state, plan) = query.into_parts();
    let explain = match &plan {
        LogicalPlan::Analyze(_) => return Err(refused("ANALYZE")),
        LogicalPlan::Explain(explain) if explain.verbose => return Err(refused("VERBOSE")),
        LogicalPlan::Explain(explain) if explain.explain_format != ExplainFormat::Indent => {
            return Err(refused("FORMAT"));
        }
        LogicalPlan::Explain(explain) => explain,
        _ => {
            refuse_inside(&plan)?;
            return Ok(DataFrame::new(state, plan));
        }
    };
    refuse_inside(&explain.plan)?;
    running.set_planning(true);
    state.config_mut().options_mut().extensions.insert(running);
    let plan = distinct_persons::of_numbers(explain.plan.as_ref().clone(), &state)?;
    let optimized = state.optimize(&plan)?;
    let row = vec![lit(LOGICAL_PLAN), lit(optimized.display_indent().to_string())];
    let columns = explain.schema.fields().iter().zip(["column1", "column2"]);
    let columns =
        columns.map(|(field, column)| datafusion::prelude::col(column).alias(field.name()));
    let answer = LogicalPlanBuilder::values(vec![row])?.project(columns.collect::<Vec<_>>())?;
    Ok(DataFrame::new(state, answer.build()?))
}

/// # Errors
///
/// There is an `EXPLAIN` below the root, or the query reads the settings.
fn refuse_inside(plan: &LogicalPlan) -> Result<(), QueryError> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        found = match node {
            node if is_explained(node) => Some(refused("in a query")),
            LogicalPlan::TableScan(scan) if scan.table_name.table() == SETTINGS => {
                let error =
                    "settings are for the operator, who runs `weir query` on the data directory";
                Some(QueryError::Invalid(error.to_owned()))
            }
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    })?;
    found.map_or(Ok(()), Err)
}

fn refused(what: &str) -> QueryError {
    QueryError::Invalid(format!(
        "EXPLAIN {what} is for the operator, who runs `weir query` on the data directory: physical plans, \
         statistics and metrics are of files that all projects share. EXPLAIN alone shows the logical plan"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::empty::EmptyTable;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::{is_explained, permitted};
    use crate::guard::Running;
    use crate::kernel::admission::Caller;
    use crate::kernel::error::QueryError;
    use weir_metadata::accounts::KeyId;

    const KEY: Caller = Caller::Key(KeyId(1));

    fn context() -> SessionContext {
        let config = SessionConfig::new().with_information_schema(true);
        let context = SessionContext::new_with_config(config);
        let table = Schema::new(vec![Field::new("event", DataType::Utf8View, true)]);
        context.register_table("events", Arc::new(EmptyTable::new(Arc::new(table)))).unwrap();
        context
    }

    #[tokio::test]
    async fn keys_get_the_logical_plan_alone() {
        let context = context();
        for (sql, is_permitted) in [
            ("EXPLAIN SELECT * FROM events WHERE event = 'a'", true),
            ("EXPLAIN FORMAT INDENT SELECT * FROM events WHERE event = 'a'", true),
            ("EXPLAIN WITH a AS (SELECT * FROM events) SELECT * FROM a WHERE event = 'a'", true),
            ("EXPLAIN ANALYZE SELECT * FROM events", false),
            ("EXPLAIN ANALYZE VERBOSE SELECT * FROM events", false),
            ("EXPLAIN VERBOSE SELECT * FROM events", false),
            ("EXPLAIN FORMAT TREE SELECT * FROM events", false),
            ("EXPLAIN FORMAT PGJSON SELECT * FROM events", false),
            ("EXPLAIN FORMAT GRAPHVIZ SELECT * FROM events", false),
            ("EXPLAIN SELECT * FROM information_schema.df_settings", false),
            ("SELECT * FROM information_schema.df_settings", false),
            ("SELECT (SELECT max(value) FROM information_schema.df_settings)", false),
            ("SHOW ALL", false),
            ("SHOW datafusion.execution.batch_size", false),
        ] {
            let query = context.sql(sql).await.unwrap();
            let own = permitted(query.clone(), Caller::Operator, Running::default());
            let own = own.unwrap();
            assert_eq!(own.logical_plan(), query.logical_plan(), "{sql}");
            let answer = match (permitted(query, KEY, Running::default()), is_permitted) {
                (Ok(answer), true) => answer,
                (Err(QueryError::Invalid(error)), false) => {
                    assert!(error.contains("operator"), "{sql}: {error}");
                    continue;
                }
                (other, _) => panic!("{sql}: {other:?}"),
            };
            assert!(!is_explained(answer.logical_plan()), "nothing is left to explain");
            let batches = answer.collect().await.unwrap();
            let text =
                |column: usize| batches[0].column(column).as_string::<i32>().value(0).to_owned();
            assert_eq!((batches.len(), batches[0].num_rows()), (1, 1), "{sql}");
            assert_eq!(batches[0].schema().field(1).name(), "plan", "{sql}");
            assert_eq!(text(0), "logical_plan", "{sql}");
            assert!(text(1).contains("events"), "{sql}: {}", text(1));
        }
        for sql in ["SELECT count(*) FROM events", "SELECT * FROM information_schema.tables"] {
            let query = context.sql(sql).await.unwrap();
            assert!(permitted(query, KEY, Running::default()).is_ok(), "{sql}");
        }
    }
}
