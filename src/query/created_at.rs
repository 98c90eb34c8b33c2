//! `created_at` of events, which is their `received_at` here: [`rewrite`]. Other tables have a column of that name, so each
//! name is looked at where it stands: `e.created_at` is of events if `e` is, and `created_at` alone if the innermost SELECT
//! around it that has such a column at all has it of events.

use std::mem;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::ast::Select;
use datafusion::sql::sqlparser::ast::SelectItem;
use datafusion::sql::sqlparser::ast::SetExpr;
use datafusion::sql::sqlparser::ast::VisitMut;
use datafusion::sql::sqlparser::ast::VisitorMut;

use crate::query::asked::asked;
use crate::query::relations::Relation;
use crate::query::relations::Relations;
use crate::query::relations::Tables;
use crate::query::relations::is_same;
use crate::query::relations::name_of;

/// The name in HogQL, and that of the column here.
const CREATED_AT: &str = "created_at";
const RECEIVED_AT: &str = "received_at";

/// Gives the column its name here, under which the answer has it as it was asked for.
pub(super) fn rewrite(statement: &mut Statement, tables: &dyn Tables) {
    if let Some(query) = asked(statement) {
        let mut names = Names { relations: Relations::new(tables), scopes: Vec::new() };
        let _ = VisitMut::visit(query, &mut names);
    }
}

/// A SELECT around a place.
struct Scope<'t> {
    relations: Vec<Relation<'t>>,
    /// Whether the name alone is that of what the SELECT gives.
    is_given: bool,
    /// What the SELECT gives, while the rest of it is visited.
    items: Vec<SelectItem>,
}

struct Names<'t> {
    relations: Relations<'t>,
    scopes: Vec<Scope<'t>>,
}

fn own() -> Ident {
    Ident::new(CREATED_AT)
}

impl Names<'_> {
    fn is_of_events(&self, table: Option<&Ident>) -> bool {
        for scope in self.scopes.iter().rev() {
            match table {
                Some(table) => {
                    if let Some(own) = scope.relations.iter().find(|own| own.is_called(table)) {
                        return own.is_of_events() && !own.has(&self::own());
                    }
                }
                None if scope.is_given
                    || scope.relations.iter().any(|own| own.has(&self::own())) =>
                {
                    return false;
                }
                None if scope.relations.iter().any(Relation::is_of_events) => return true,
                None => {}
            }
        }
        false
    }

    /// The name of the column, if the expression is one that is to have another.
    fn renamed<'e>(&self, expression: &'e mut Expr) -> Option<&'e mut Ident> {
        let (table, name) = match expression {
            Expr::Identifier(name) => (None, name),
            Expr::CompoundIdentifier(names) => match names.as_mut_slice() {
                [table, name] => (Some(&*table), name),
                _ => return None,
            },
            _ => return None,
        };
        (is_same(name, &own()) && self.is_of_events(table)).then_some(name)
    }
}

/// Whether an item has the name by `AS`.
fn is_named_so(item: &SelectItem) -> bool {
    matches!(item, SelectItem::ExprWithAlias { alias, .. } if is_same(alias, &own()))
}

impl VisitorMut for Names<'_> {
    type Break = ();

    // ORDER BY is of the query.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
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
                Scope { relations, is_given, items: Vec::new() }
            }
            // What several give together is ordered by that alone.
            _ => Scope { relations: Vec::new(), is_given: true, items: Vec::new() },
        };
        self.scopes.push(scope);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.scopes.pop();
        self.relations.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let relations = self.relations.of(select);
        self.scopes.push(Scope { relations, is_given: false, items: Vec::new() });
        // With DISTINCT, what an answer is ordered by has to be written as in the list of columns.
        let keeps_names = select.distinct.is_none();
        let mut items = mem::take(&mut select.projection);
        for item in &mut items {
            if let SelectItem::UnnamedExpr(expression) = item
                && let Some(name) = self.renamed(expression)
            {
                let alias = mem::replace(name, Ident::new(RECEIVED_AT));
                if keeps_names {
                    let expr = expression.clone();
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
            }
        }
        // In the list of columns the name is that of a column; behind it, it may be that of an item.
        let _ = VisitMut::visit(&mut items, self);
        if let Some(scope) = self.scopes.last_mut() {
            let mut named = items.iter().filter(|item| is_named_so(item));
            scope.is_given = named.any(|item| !is_received(item));
            scope.items = items;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(scope) = self.scopes.pop() {
            select.projection = scope.items;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Some(name) = self.renamed(expression) {
            *name = Ident::new(RECEIVED_AT);
        }
        ControlFlow::Continue(())
    }
}

/// Whether an item is the column itself, so that its name is that of both.
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
    use crate::query::dialect;
    use crate::query::relations::Tables;

    const TABLES: &[(&str, &[&str])] =
        &[("events", &["event", "received_at", "person_id"]), ("persons", &["id", "created_at"])];

    fn rewritten(sql: &str) -> String {
        let tables: &dyn Tables = &TABLES;
        let mut statement = dialect::statement(sql, 50).unwrap();
        rewrite(&mut statement, tables);
        statement.to_string()
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
            "SELECT created_at FROM events AS e JOIN persons AS p ON e.person_id = p.id",
            "SELECT created_at FROM (SELECT 1 AS created_at) AS events",
            "WITH events AS (SELECT created_at FROM persons) SELECT created_at, events.created_at FROM events",
            "SELECT person.created_at, x.created_at FROM events",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
