//! Counts how often queries name an event: in memory, and written to the metadata store now and then. A query counts
//! once it has been planned, whatever its result: a list of events of one name, values of properties of some events,
//! SQL that compares the column `event` with a name.

use std::collections::{BTreeSet, HashMap};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use parking_lot::Mutex;

use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::event_usage::EventUsage;

/// The column with the names of events, in any table.
const EVENT: &str = "event";

/// Maximum names counted per query; of more, the first in sort order count.
const NAMES_MAX: usize = 100;

/// Maximum pairs of name and day that wait for the next write; further ones are not counted.
const WAITING_MAX: usize = 10_000;

/// Uses of event names since the last write.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<HashMap<(ProjectId, String, i64), u64>>);

impl Usage {
    /// Counts a query that names these events, each once.
    pub(crate) fn note<'n>(
        &self,
        project: ProjectId,
        names: impl IntoIterator<Item = &'n str>,
        now: UnixMicros,
    ) {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let day = EventUsage::day_of(now);
        for name in names.into_iter().take(NAMES_MAX) {
            self.add(project, name.to_owned(), day, 1);
        }
    }

    /// Writes the uses since the last write.
    ///
    /// # Errors
    ///
    /// The store failed; the counts are kept for the next write.
    pub(crate) async fn write(&self, metadata: &Metadata) -> Result<(), MetadataError> {
        let taken = std::mem::take(&mut *self.0.lock());
        let taken = taken.into_iter();
        let taken =
            taken.map(|((project, event, day), count)| EventUsage { project, event, day, count });
        let taken: Vec<EventUsage> = taken.collect();
        let written = metadata.add_event_usage(&taken).await;
        if written.is_err() {
            for EventUsage { project, event, day, count } in taken {
                self.add(project, event, day, count);
            }
        }
        written
    }

    fn add(&self, project: ProjectId, name: String, day: i64, count: u64) {
        let mut waiting = self.0.lock();
        let key = (project, name, day);
        if waiting.len() < WAITING_MAX || waiting.contains_key(&key) {
            let known = waiting.entry(key).or_default();
            *known = known.saturating_add(count);
        }
    }
}

/// The texts with which a plan compares the column `event`, by `=` or `IN`.
pub(crate) fn events_named(plan: &LogicalPlan) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let found = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                note(expression, &mut names);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    // A plan that cannot be walked counts as naming no events.
    if found.is_err() { BTreeSet::new() } else { names }
}

fn note(expression: &Expr, names: &mut BTreeSet<String>) {
    match expression {
        Expr::BinaryExpr(compared) if compared.op == Operator::Eq => {
            let sides = (&*compared.left, &*compared.right);
            let name = match sides {
                (column, name) if is_event(column) => text(name),
                (name, column) if is_event(column) => text(name),
                _ => None,
            };
            names.extend(name);
        }
        Expr::InList(list) if !list.negated && is_event(&list.expr) => {
            names.extend(list.list.iter().take(NAMES_MAX).filter_map(text));
        }
        _ => {}
    }
}

fn is_event(expression: &Expr) -> bool {
    matches!(expression, Expr::Column(named) if named.name == EVENT)
}

fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::empty::EmptyTable;
    use datafusion::prelude::SessionContext;

    use super::events_named;

    #[tokio::test]
    async fn events_are_named_by_comparison_alone() {
        let context = SessionContext::new();
        let fields =
            ["event", "distinct_id"].map(|name| Field::new(name, DataType::Utf8View, true));
        let table = EmptyTable::new(Arc::new(Schema::new(fields.to_vec())));
        context.register_table("events", Arc::new(table)).unwrap();
        for (sql, expected) in [
            ("SELECT * FROM events", vec![]),
            ("SELECT * FROM events WHERE event = 'a'", vec!["a"]),
            ("SELECT * FROM events e WHERE 'a' = e.event OR event = 'b'", vec!["a", "b"]),
            ("SELECT * FROM events WHERE event IN ('b', 'a', 'b')", vec!["a", "b"]),
            ("SELECT * FROM events WHERE event NOT IN ('a') AND event <> 'b'", vec![]),
            ("SELECT * FROM events WHERE distinct_id = 'a' AND event LIKE 'b'", vec![]),
            ("SELECT sum(CASE WHEN event = 'a' THEN 1 ELSE 0 END) FROM events", vec!["a"]),
            ("SELECT count(*) FILTER (WHERE event = 'a') FROM events", vec!["a"]),
            ("SELECT * FROM events JOIN events o ON o.event = 'a'", vec!["a"]),
            (
                "SELECT * FROM events WHERE distinct_id IN
                 (SELECT distinct_id FROM events WHERE event = 'a')",
                vec!["a"],
            ),
            (
                "WITH o AS (SELECT * FROM events WHERE event = 'a')
                 SELECT (SELECT count(*) FROM events WHERE event = 'b') FROM o",
                vec!["a", "b"],
            ),
            ("EXPLAIN SELECT * FROM events WHERE event = 'a'", vec!["a"]),
        ] {
            let query = context.sql(sql).await.unwrap();
            let named = events_named(query.logical_plan());
            assert_eq!(named.into_iter().collect::<Vec<_>>(), expected, "{sql}");
        }
    }
}
