//! `created_at` of events, which is `received_at` here: [`rewrite`]. Other tables have a column of that name, so each
//! use is resolved in its scope: `e.created_at` is rewritten if `e` has the columns of events; an unqualified
//! `created_at` if, in the innermost SELECT around it with such a column, it is the one of events. If it could be both,
//! it is refused.

use std::mem;
use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, TableWithJoins, VisitorMut,
};

use crate::dialect::relations::{Relation, Relations, Tables, is_same, name_of};
use crate::dialect::statements;
use crate::dialect::walk::walk_mut;

/// The name in HogQL, and the name of the column here.
const CREATED_AT: &str = "created_at";
const RECEIVED_AT: &str = "received_at";

/// Renames the column to its name here, and keeps the name in the query as that of the result's column.
///
/// # Errors
///
/// The unqualified name is that of columns of two tables.
pub(crate) fn rewrite(statement: &mut Statement, tables: &dyn Tables) -> Result<()> {
    let relations = Relations::new(tables);
    statements::rewrite(statement, &mut Names { relations, scopes: Vec::new() })
}

/// A SELECT around the current place.
struct Scope<'t> {
    relations: Vec<Relation<'t>>,
    /// Whether the unqualified name refers to a column in the output of the SELECT.
    is_given: bool,
    /// Parts of the SELECT that have been visited, set aside while the rest of it is visited.
    visited: Visited,
}

/// Clauses of a SELECT in which the name refers to the table's column, whatever its output columns are: all that are
/// evaluated before grouping.
#[derive(Default)]
struct Visited {
    items: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    prewhere: Option<Expr>,
    selection: Option<Expr>,
}

struct Names<'t> {
    relations: Relations<'t>,
    scopes: Vec<Scope<'t>>,
}

fn own() -> Ident {
    Ident::new(CREATED_AT)
}

impl Names<'_> {
    /// Whether the column is of events, by the qualifying table name if there is one.
    fn is_of_events(&self, table: Option<&Ident>) -> Result<bool> {
        let name = own();
        for scope in self.scopes.iter().rev() {
            let relations = &scope.relations;
            if let Some(table) = table {
                match relations.iter().find(|own| own.is_called(table)) {
                    Some(own) => return Ok(own.is_of_events() && !own.has(&name)),
                    None => continue,
                }
            }
            if scope.is_given {
                return Ok(false);
            }
            let is_renamed = |own: &Relation<'_>| own.is_of_events() && !own.has(&name);
            match (relations.iter().any(|own| own.has(&name)), relations.iter().any(is_renamed)) {
                (true, true) => {
                    let why = "created_at is of events and of another table: say of which, as in events.created_at";
                    return Err(DataFusionError::Plan(why.to_owned()));
                }
                (true, false) => return Ok(false),
                (false, true) => return Ok(true),
                (false, false) => {}
            }
        }
        Ok(false)
    }

    /// The identifier to rename, if the expression is a reference to such a column.
    fn renamed<'e>(&self, expression: &'e mut Expr) -> Result<Option<&'e mut Ident>> {
        let (table, name) = match expression {
            Expr::Identifier(name) => (None, name),
            Expr::CompoundIdentifier(names) => match names.as_mut_slice() {
                [table, name] => (Some(&*table), name),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let is_wanted = is_same(name, &own()) && self.is_of_events(table)?;
        Ok(is_wanted.then_some(name))
    }
}

/// Whether an item has the name as an alias.
fn is_named_so(item: &SelectItem) -> bool {
    matches!(item, SelectItem::ExprWithAlias { alias, .. } if is_same(alias, &own()))
}

impl VisitorMut for Names<'_> {
    type Break = DataFusionError;

    // ORDER BY belongs to the query, not to its SELECT.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.enter(query);
        let scope = match &*query.body {
            SetExpr::Select(select) => {
                let keeps_names = select.distinct.is_none();
                let is_own = |item: &SelectItem| match keeps_names {
                    true => name_of(item).is_some_and(|name| is_same(&name, &own())),
                    false => is_named_so(item),
                };
                let is_given = select.projection.iter().any(is_own);
                let relations = self.relations.of(select);
                Scope { relations, is_given, visited: Visited::default() }
            }
            // Set operations can only be ordered by their output columns.
            _ => Scope { relations: Vec::new(), is_given: true, visited: Visited::default() },
        };
        self.scopes.push(scope);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.scopes.pop();
        self.relations.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let relations = self.relations.of(select);
        self.scopes.push(Scope { relations, is_given: false, visited: Visited::default() });
        // With DISTINCT, ORDER BY expressions must be written as in the select list.
        let keeps_names = select.distinct.is_none();
        let mut items = mem::take(&mut select.projection);
        for item in &mut items {
            let SelectItem::UnnamedExpr(expression) = item else { continue };
            let alias = match self.renamed(expression) {
                Err(error) => return ControlFlow::Break(error),
                Ok(None) => continue,
                Ok(Some(name)) => mem::replace(name, Ident::new(RECEIVED_AT)),
            };
            if keeps_names {
                let expr = expression.clone();
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        let mut from = mem::take(&mut select.from);
        let (mut prewhere, mut selection) = (select.prewhere.take(), select.selection.take());
        walk_mut(&mut items, self)?;
        walk_mut(&mut from, self)?;
        walk_mut(&mut prewhere, self)?;
        walk_mut(&mut selection, self)?;
        if let Some(scope) = self.scopes.last_mut() {
            let mut named = items.iter().filter(|item| is_named_so(item));
            scope.is_given = named.any(|item| !is_received(item));
            scope.visited = Visited { items, from, prewhere, selection };
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        if let Some(scope) = self.scopes.pop() {
            let Visited { items, from, prewhere, selection } = scope.visited;
            (select.projection, select.from) = (items, from);
            (select.prewhere, select.selection) = (prewhere, selection);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        match self.renamed(expression) {
            Err(error) => return ControlFlow::Break(error),
            Ok(None) => {}
            Ok(Some(name)) => *name = Ident::new(RECEIVED_AT),
        }
        ControlFlow::Continue(())
    }
}

/// Whether an item is the column itself, so that both have the same name.
fn is_received(item: &SelectItem) -> bool {
    let SelectItem::ExprWithAlias { expr, .. } = item else { return false };
    match expr {
        Expr::Identifier(name) => name.value == RECEIVED_AT,
        Expr::CompoundIdentifier(names) => {
            names.last().is_some_and(|name| name.value == RECEIVED_AT)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;
    use crate::dialect::hogql;
    use crate::dialect::relations::Tables;

    const TABLES: &[(&str, &[&str])] =
        &[("events", &["event", "received_at", "person_id"]), ("persons", &["id", "created_at"])];

    fn rewritten(sql: &str) -> String {
        let tables: &dyn Tables = &TABLES;
        let mut statement = hogql::statement(sql, 50).unwrap();
        match rewrite(&mut statement, tables) {
            Ok(()) => statement.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_of_events_are_renamed() {
        for (sql, expected) in [
            (
                "SELECT created_at FROM events ORDER BY created_at",
                "SELECT received_at AS created_at FROM events ORDER BY created_at",
            ),
            (
                "SELECT e.created_at, p.created_at FROM events AS e JOIN persons AS p ON e.person_id = p.id",
                "SELECT e.received_at AS created_at, p.created_at FROM events AS e JOIN persons AS p ON e.person_id = p.id",
            ),
            (
                "SELECT p.created_at, e.Created_At FROM persons AS p JOIN events AS e ON e.created_at > p.created_at",
                "SELECT p.created_at, e.received_at AS Created_At FROM persons AS p JOIN events AS e ON e.received_at > p.created_at",
            ),
            (
                "SELECT * FROM events WHERE created_at > 1 AND person_id IN (SELECT id FROM persons WHERE created_at > 2) ORDER BY created_at",
                "SELECT * FROM events WHERE received_at > 1 AND person_id IN (SELECT id FROM persons WHERE created_at > 2) ORDER BY received_at",
            ),
            (
                "SELECT * FROM persons WHERE created_at > 1 AND id IN (SELECT person_id FROM events WHERE created_at > 2)",
                "SELECT * FROM persons WHERE created_at > 1 AND id IN (SELECT person_id FROM events WHERE received_at > 2)",
            ),
            (
                "SELECT * FROM persons AS p WHERE EXISTS (SELECT 1 FROM events AS e WHERE e.created_at > p.created_at)",
                "SELECT * FROM persons AS p WHERE EXISTS (SELECT 1 FROM events AS e WHERE e.received_at > p.created_at)",
            ),
            (
                "SELECT created_at FROM (SELECT * FROM events) AS t WHERE t.created_at > 1",
                "SELECT received_at AS created_at FROM (SELECT * FROM events) AS t WHERE t.received_at > 1",
            ),
            (
                "SELECT created_at FROM (SELECT created_at FROM events)",
                "SELECT created_at FROM (SELECT received_at AS created_at FROM events)",
            ),
            (
                "WITH t AS (SELECT created_at AS c FROM events), u AS (SELECT created_at FROM persons) SELECT created_at, c FROM t, u",
                "WITH t AS (SELECT received_at AS c FROM events), u AS (SELECT created_at FROM persons) SELECT created_at, c FROM t, u",
            ),
            (
                "SELECT toDate(created_at) AS created_at, count() FROM events GROUP BY created_at ORDER BY created_at",
                "SELECT toDate(received_at) AS created_at, count() FROM events GROUP BY created_at ORDER BY created_at",
            ),
            (
                "SELECT toDate(created_at) AS created_at, count() FROM events WHERE created_at > 1 GROUP BY created_at",
                "SELECT toDate(received_at) AS created_at, count() FROM events WHERE received_at > 1 GROUP BY created_at",
            ),
            (
                "SELECT created_at, count() FROM events GROUP BY created_at HAVING max(created_at) > 1",
                "SELECT received_at AS created_at, count() FROM events GROUP BY received_at HAVING max(received_at) > 1",
            ),
            (
                "SELECT DISTINCT created_at FROM events ORDER BY created_at",
                "SELECT DISTINCT received_at FROM events ORDER BY received_at",
            ),
            (
                "SELECT created_at FROM events UNION ALL SELECT created_at FROM persons",
                "SELECT received_at AS created_at FROM events UNION ALL SELECT created_at FROM persons",
            ),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
        for sql in [
            "SELECT created_at FROM persons ORDER BY created_at",
            "SELECT created_at FROM (SELECT 1 AS created_at) AS events",
            "WITH events AS (SELECT created_at FROM persons) SELECT created_at, events.created_at FROM events",
            "SELECT person.created_at, x.created_at FROM events",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
        let both = "events AS e JOIN persons AS p ON e.person_id = p.id";
        for sql in [
            format!("SELECT created_at FROM {both}"),
            format!("SELECT 1 FROM {both} WHERE created_at > 1"),
            format!("SELECT 1 FROM {both} ORDER BY created_at"),
        ] {
            let refused = rewritten(&sql);
            assert!(refused.contains("say of which"), "{sql}: {refused}");
        }
    }
}
