//! Which properties of persons a plan asks for: [`NarrowPersons`]. If it asks for some of them alone, by functions on the
//! JSON text, a scan of persons reads their columns and not the text.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::events::table::OWN_EVENTS;
use crate::functions::json;
use crate::persons::person_scan::PersonsProvider;
use weir_identity::row::Key;

/// The column with the JSON text, in every table that has one.
const PROPERTIES: &str = "properties";

/// Properties beyond which the whole text is read.
const KEYS_MAX: usize = 64;

/// Lets scans of persons read only the properties that the plan asks for. It is the last rule: by then views are parts of
/// the plan, and columns that nobody takes are gone.
#[derive(Debug)]
pub(crate) struct NarrowPersons;

impl OptimizerRule for NarrowPersons {
    fn name(&self) -> &'static str {
        "narrow_persons"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        narrowed(plan)
    }
}

fn narrowed(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let Some(keys) = keys(&plan)? else { return Ok(Transformed::no(plan)) };
    let keys: Arc<[Key]> = keys.iter().map(|key| Key::new(key)).collect();
    let narrow = |node: LogicalPlan| match node {
        LogicalPlan::TableScan(scan) => match persons(&scan)? {
            Some(table) if table.keys.as_deref() != Some(&*keys) => {
                let source = provider_as_source(Arc::new(table.narrowed(Arc::clone(&keys))));
                Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })))
            }
            _ => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        },
        node => Ok(Transformed::no(node)),
    };
    plan.transform_down_with_subqueries(narrow)
}

fn persons(scan: &TableScan) -> Result<Option<PersonsProvider>> {
    // A source of something else is a view, such as that of events.
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    Ok(provider.downcast_ref::<PersonsProvider>().cloned())
}

/// The properties that a plan asks for of any table; `None` if it takes the text of all of them anywhere.
fn keys(plan: &LogicalPlan) -> Result<Option<BTreeSet<String>>> {
    let (mut keys, mut is_whole) = (BTreeSet::new(), has_text(plan));
    plan.apply_with_subqueries(|node| {
        is_whole |=
            is_named_as_events(node) || takes_rows(node) && node.inputs().into_iter().any(has_text);
        node.apply_expressions(|expression| {
            if is_text(expression) && is_handed_on(node) {
                return Ok(TreeNodeRecursion::Continue);
            }
            expression.apply(|part| {
                if let Some((key, arguments)) = access(part) {
                    keys.insert(key.to_owned());
                    for argument in arguments {
                        is_whole |= argument.exists(|part| Ok(is_text(part)))?;
                    }
                    return Ok(TreeNodeRecursion::Jump);
                }
                is_whole |= is_text(part);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok((!is_whole && keys.len() <= KEYS_MAX).then_some(keys))
}

/// Whether a query gives the name of the table below that of events to something else.
fn is_named_as_events(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::SubqueryAlias(named) if named.alias.table() == OWN_EVENTS)
}

/// Whether a node gives columns of a table on beside others, under their names: it is not the value of a subquery, and who
/// takes one of them names it.
fn is_handed_on(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Projection(shown)
        if shown.expr.len() > 1 && matches!(&*shown.input, LogicalPlan::TableScan(_)))
}

/// Whether a node takes all columns of its inputs without naming them.
fn takes_rows(node: &LogicalPlan) -> bool {
    !matches!(
        node,
        LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_)
    )
}

/// Whether the rows of a plan have the text of all properties.
fn has_text(plan: &LogicalPlan) -> bool {
    plan.schema().columns().into_iter().any(|column| is_text(&Expr::Column(column)))
}

/// Whether an expression is the text of all properties, of whatever table but the one below that of events.
fn is_text(expression: &Expr) -> bool {
    let (Expr::Column(column) | Expr::OuterReferenceColumn(_, column)) = expression else {
        return false;
    };
    let is_of_events = column.relation.as_ref().is_some_and(|table| table.table() == OWN_EVENTS);
    column.name == PROPERTIES && !is_of_events
}

/// The property that an expression takes from the text of all, and its arguments behind that.
fn access(expression: &Expr) -> Option<(&str, &[Expr])> {
    let Expr::ScalarFunction(call) = expression else { return None };
    let [text, Expr::Literal(key, _), arguments @ ..] = call.args.as_slice() else { return None };
    match is_text(text) && json::is_access(&call.func) {
        true => Some((key.try_as_str().flatten()?, arguments)),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::empty::EmptyTable;
    use datafusion::prelude::SessionContext;

    use super::keys;
    use crate::persons::tables::{persons_schema, with_columns};
    use weir_event::promotion::Promotion;
    use weir_event::schema::PropertyType;

    /// Goal: a plan has only some properties if it names each of them, and all if it may need more.
    #[tokio::test]
    async fn plans_say_what_they_ask_for() {
        let mut context = SessionContext::new();
        datafusion_functions_json::register_all(&mut context).unwrap();
        let field = |name: &str| Field::new(name, DataType::Utf8View, false);
        for table in ["persons", "own_events"] {
            let schema = Schema::new(vec![field("uuid"), field("properties")]);
            context.register_table(table, Arc::new(EmptyTable::new(Arc::new(schema)))).unwrap();
        }
        let some: [(&str, &[&str]); 7] = [
            ("SELECT count(*) FROM persons", &[]),
            ("SELECT uuid FROM persons WHERE json_as_text(properties, 'plan') = 'pro'", &["plan"]),
            (
                "SELECT properties->>'a', count(*) FROM persons GROUP BY properties->>'a' ORDER BY max(json_get_int(properties, 'b', 'c'))",
                &["a", "b"],
            ),
            (
                "SELECT 1 FROM persons p WHERE EXISTS (SELECT 1 FROM persons q WHERE json_as_text(q.properties, 'x') = json_as_text(p.properties, 'y'))",
                &["x", "y"],
            ),
            (
                "SELECT p.e FROM (SELECT json_as_text(properties, 'e') AS e FROM persons) AS p",
                &["e"],
            ),
            (
                "SELECT a, json_as_text(properties, 'e') FROM (SELECT uuid || '!' AS a, properties FROM persons) AS p",
                &["e"],
            ),
            (
                "SELECT json_as_text(p.properties, 'e') FROM (SELECT uuid, properties FROM own_events) AS e JOIN persons p ON p.uuid = e.uuid",
                &["e"],
            ),
        ];
        for (sql, expected) in some {
            let state = context.state();
            let plan = state.create_logical_plan(sql).await.unwrap();
            let expected: BTreeSet<String> = expected.iter().map(|key| (*key).to_owned()).collect();
            for plan in [state.optimize(&plan).unwrap(), plan] {
                assert_eq!(keys(&plan).unwrap(), Some(expected.clone()), "{sql}\n{plan}");
            }
        }
        for sql in [
            "SELECT * FROM persons",
            "SELECT own_events.properties FROM persons AS own_events",
            "WITH own_events AS (SELECT properties FROM persons) SELECT max(properties) FROM own_events",
            "SELECT uuid FROM (SELECT DISTINCT * FROM persons)",
            "SELECT count(*) FROM (SELECT uuid, properties FROM persons UNION SELECT uuid, properties FROM persons)",
            "SELECT count(*) FROM (SELECT properties FROM persons INTERSECT SELECT properties FROM own_events)",
            "SELECT properties FROM persons",
            "SELECT a, p.b FROM (SELECT uuid AS a, properties AS b FROM persons) AS p",
            "SELECT max(p.properties) FROM (SELECT uuid AS a, properties FROM persons) AS p",
            "SELECT properties AS p FROM persons WHERE json_as_text(properties, 'plan') = 'pro'",
            "SELECT count(*) FROM persons WHERE properties LIKE '%x%'",
            "SELECT json_object_keys(properties) FROM persons",
            "SELECT json_as_text(properties, uuid) FROM persons",
            "SELECT json_as_text(properties, 'a', properties) FROM persons",
            "SELECT max(properties) FROM persons",
            "SELECT uuid FROM persons ORDER BY properties",
            "SELECT a.uuid FROM persons a JOIN persons b ON a.properties = b.properties",
            "SELECT uuid FROM persons WHERE uuid IN (SELECT properties FROM persons)",
        ] {
            let state = context.state();
            let plan = state.create_logical_plan(sql).await.unwrap();
            for plan in [state.optimize(&plan).unwrap(), plan] {
                assert_eq!(keys(&plan).unwrap(), None, "{sql}\n{plan}");
            }
        }
    }
    /// Goal: the columns of promoted properties ask for no more than these properties.
    #[tokio::test]
    async fn promoted_columns_ask_for_their_properties() {
        let mut context = SessionContext::new();
        datafusion_functions_json::register_all(&mut context).unwrap();
        let promotions = [("plan", PropertyType::Text), ("a b", PropertyType::Double)];
        let promotions = promotions.map(|(key, kind)| Promotion { key: key.into(), kind }).to_vec();
        let persons = Arc::new(EmptyTable::new(persons_schema()));
        let persons = with_columns(persons, &promotions).unwrap();
        context.register_table("persons", persons).unwrap();
        let some: [(&str, &[&str]); 6] = [
            ("SELECT count(*) FROM persons", &[]),
            ("SELECT id, number FROM persons WHERE is_identified", &[]),
            ("SELECT p_plan, count(*) FROM persons GROUP BY 1", &["plan"]),
            ("SELECT uuid FROM persons WHERE \"p_a%20b\" > 5 ORDER BY p_plan", &["a b", "plan"]),
            (
                "SELECT p.p_plan FROM persons p JOIN persons q ON p.id = q.id WHERE json_as_text(q.properties, 'x') = '1'",
                &["plan", "x"],
            ),
            ("SELECT n FROM (SELECT uuid, p_plan AS n FROM persons) AS s", &["plan"]),
        ];
        for (sql, expected) in some {
            let state = context.state();
            let plan = state.create_logical_plan(sql).await.unwrap();
            let expected: BTreeSet<String> = expected.iter().map(|key| (*key).to_owned()).collect();
            let plan = state.optimize(&plan).unwrap();
            assert_eq!(keys(&plan).unwrap(), Some(expected.clone()), "{sql}\n{plan}");
        }
        for sql in ["SELECT * FROM persons", "SELECT p_plan, properties FROM persons"] {
            let state = context.state();
            let plan = state.create_logical_plan(sql).await.unwrap();
            assert_eq!(keys(&state.optimize(&plan).unwrap()).unwrap(), None, "{sql}");
        }
    }
}
