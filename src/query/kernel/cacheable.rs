//! Decides whether a result may be cached while the tables of its project do not change: [`is_cacheable`]. It works by an
//! allowlist: a plan with any other node, table or function is not cacheable.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::builder::UNNAMED_TABLE;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};

use crate::dialect::filtered;
use crate::events::table::OWN_EVENTS;

/// Tables that change only with the log of their project, and rows that are part of the plan itself. Not included are
/// tables of definitions and warnings: they are written later than their log records, and by users.
const TABLES: [&str; 7] =
    ["events", OWN_EVENTS, "persons", "person_distinct_ids", "groups", "sessions", UNNAMED_TABLE];

/// The schema of these tables.
const SCHEMA: &str = "public";

/// Whether the result of an unoptimized plan depends only on the tables of events, persons and groups, and not on the
/// current time, random numbers or settings.
///
/// # Errors
///
/// The plan cannot be walked.
pub(crate) fn is_cacheable(plan: &LogicalPlan) -> Result<bool> {
    let mut is_cacheable = true;
    let mut note = |is_known: bool| {
        is_cacheable &= is_known;
        match is_cacheable {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        }
    };
    plan.apply_with_subqueries(|node| {
        let mut next = note(is_known(node));
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                next = note(is_fixed(expression));
                Ok(next)
            })
        })?;
        Ok(next)
    })?;
    Ok(is_cacheable)
}

fn is_known(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::TableScan(scan) => is_of_log(scan),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_) => true,
        _ => false,
    }
}

fn is_of_log(scan: &TableScan) -> bool {
    let is_own = scan
        .table_name
        .schema()
        .is_none_or(|schema| schema == SCHEMA || schema == filtered::SCHEMA);
    is_own && TABLES.contains(&scan.table_name.table())
}

fn is_fixed(expression: &Expr) -> bool {
    let volatility = match expression {
        Expr::ScalarFunction(call) => call.func.signature().volatility,
        Expr::AggregateFunction(call) => call.func.signature().volatility,
        Expr::WindowFunction(call) => call.fun.signature().volatility,
        Expr::ScalarVariable(..) | Expr::Placeholder(_) | Expr::HigherOrderFunction(_) => {
            Volatility::Volatile
        }
        _ => Volatility::Immutable,
    };
    volatility == Volatility::Immutable
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::catalog::MemorySchemaProvider;
    use datafusion::datasource::empty::EmptyTable;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::is_cacheable;

    fn context() -> SessionContext {
        let config = SessionConfig::new()
            .with_information_schema(true)
            .with_default_catalog_and_schema("weir", "public");
        let context = SessionContext::new_with_config(config);
        let fields = vec![
            Field::new("event", DataType::Utf8View, true),
            Field::new("n", DataType::Int64, true),
        ];
        let table = Arc::new(EmptyTable::new(Arc::new(Schema::new(fields))));
        for name in ["events", "own_events", "event_definitions"] {
            context.register_table(name, Arc::clone(&table) as _).unwrap();
        }
        let other = MemorySchemaProvider::new();
        let catalog = context.catalog("weir").unwrap();
        catalog.register_schema("other", Arc::new(other)).unwrap();
        context.register_table("other.events", table).unwrap();
        context
    }

    #[tokio::test]
    async fn answers_last_that_depend_on_the_tables_alone() {
        let context = context();
        for (sql, expected) in [
            ("SELECT 1", true),
            ("SELECT event, count(*) FROM events GROUP BY event ORDER BY 2 LIMIT 5", true),
            ("SELECT e.event FROM public.events AS e JOIN events AS f ON e.n = f.n", true),
            (
                "WITH t AS (SELECT * FROM events) SELECT sum(n) OVER (PARTITION BY event) FROM t",
                true,
            ),
            ("SELECT * FROM events WHERE n > 1 + 2 AND upper(event) = 'A'", true),
            ("VALUES (1), (2)", true),
            ("SELECT n FROM own_events", true),
            ("SELECT n FROM events UNION ALL SELECT 1", true),
            ("SELECT now()", false),
            ("SELECT current_date", false),
            ("SELECT current_timestamp FROM events", false),
            ("SELECT random()", false),
            ("SELECT uuid()", false),
            ("SELECT * FROM events WHERE n > date_part('hour', now())", false),
            ("SELECT (SELECT max(n) FROM events WHERE n < date_part('day', now()))", false),
            ("SELECT n FROM events WHERE n IN (SELECT n FROM event_definitions)", false),
            ("SELECT sum(n) OVER (ORDER BY random()) FROM events", false),
            ("SELECT count(*) FILTER (WHERE now() > '2020-01-01') FROM events", false),
            ("SELECT event FROM events ORDER BY random()", false),
            ("WITH t AS (SELECT now() AS at) SELECT 1 FROM t", false),
            ("SELECT * FROM event_definitions", false),
            ("SELECT * FROM other.events", false),
            ("SELECT table_name FROM information_schema.tables", false),
            ("SELECT * FROM range(1, 3)", false),
            ("EXPLAIN SELECT 1", false),
            ("SHOW TABLES", false),
        ] {
            let plan = context.state().create_logical_plan(sql).await.unwrap();
            assert_eq!(is_cacheable(&plan).unwrap(), expected, "{sql}");
        }
    }
}
