//! Name resolution on syntax trees: the relations in a SELECT's FROM and their columns, as far as the syntax shows:
//! [`Relations`]. Rewrites that replace names use it to find the relation to which a name belongs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableAlias, TableFactor, TableWithJoins,
};

/// The table of events, in any schema.
pub(crate) const EVENTS: &str = "events";

/// The column of a table function, unless it has an alias.
const OF_FUNCTIONS: &str = "value";

/// The stored tables.
pub(crate) trait Tables: std::fmt::Debug {
    /// Whether a table has a column.
    fn has(&self, table: &str, column: &Ident) -> bool;
}

impl Tables for BTreeMap<String, Arc<dyn TableProvider>> {
    fn has(&self, table: &str, column: &Ident) -> bool {
        let fields = self.get(table).map(|table| table.schema());
        fields.is_some_and(|fields| {
            fields.fields().iter().any(|field| is_same(column, &Ident::new(field.name())))
        })
    }
}

/// Whether two names are equal: without quotes, case is ignored.
pub(crate) fn is_same(own: &Ident, other: &Ident) -> bool {
    match own.quote_style.or(other.quote_style) {
        Some(_) => own.value == other.value,
        None => own.value.eq_ignore_ascii_case(&other.value),
    }
}

/// Columns by name, and stored tables of which all columns are included. A set, however often `*` includes a table.
#[derive(Clone, Debug, Default)]
struct Columns {
    named: HashSet<Ident>,
    of_tables: BTreeSet<String>,
}

/// A table, a subquery or a table function in a FROM.
#[derive(Debug)]
pub(crate) struct Relation<'t> {
    tables: &'t dyn Tables,
    name: Option<Ident>,
    columns: Columns,
}

impl Relation<'_> {
    /// Whether columns can be qualified by this name.
    pub(crate) fn is_called(&self, name: &Ident) -> bool {
        self.name.as_ref().is_some_and(|own| is_same(own, name))
    }

    /// Whether it has a column.
    pub(crate) fn has(&self, column: &Ident) -> bool {
        let Columns { named, of_tables } = &self.columns;
        named.iter().any(|own| is_same(own, column))
            || of_tables.iter().any(|table| self.tables.has(table, column))
    }

    /// Whether it has all columns of events.
    pub(crate) fn is_of_events(&self) -> bool {
        self.columns.of_tables.contains(EVENTS)
    }
}

/// The relations visible at a place in a statement: the stored tables, and the CTEs of each WITH around it.
#[derive(Clone, Debug)]
pub(crate) struct Relations<'t> {
    tables: &'t dyn Tables,
    named: Vec<(Ident, Columns)>,
    /// For each query around the place, the number of CTEs that were defined outside of it.
    marks: Vec<usize>,
}

impl<'t> Relations<'t> {
    /// The relations visible outside of all queries.
    pub(crate) fn new(tables: &'t dyn Tables) -> Self {
        Self { tables, named: Vec::new(), marks: Vec::new() }
    }

    /// Enters a query.
    pub(crate) fn enter(&mut self, query: &Query) {
        self.marks.push(self.named.len());
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        for Cte { alias, query, .. } in ctes {
            let columns = self.of_query(query);
            self.named.push((alias.name.clone(), renamed(columns, Some(alias))));
        }
    }

    /// Leaves a query.
    pub(crate) fn leave(&mut self) {
        if let Some(mark) = self.marks.pop() {
            self.named.truncate(mark);
        }
    }

    /// The relations of the FROM of a SELECT.
    pub(crate) fn of(&mut self, select: &Select) -> Vec<Relation<'t>> {
        let mut found = Vec::new();
        for joined in &select.from {
            self.add_joined(joined, &mut found);
        }
        found
    }

    /// The relations of one table factor of a FROM.
    pub(crate) fn of_factor(&mut self, factor: &TableFactor) -> Vec<Relation<'t>> {
        let mut found = Vec::new();
        self.add(factor, &mut found);
        found
    }

    fn add_joined(&mut self, joined: &TableWithJoins, found: &mut Vec<Relation<'t>>) {
        self.add(&joined.relation, found);
        for join in &joined.joins {
            self.add(&join.relation, found);
        }
    }

    fn add(&mut self, factor: &TableFactor, found: &mut Vec<Relation<'t>>) {
        let (name, columns, alias) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let last = last(name);
                let columns = last.as_ref().map(|last| self.of_table(name, last));
                (last, columns.unwrap_or_default(), alias)
            }
            TableFactor::Table { name, alias, .. } => {
                let named = HashSet::from([Ident::new(OF_FUNCTIONS)]);
                (last(name), Columns { named, ..Columns::default() }, alias)
            }
            TableFactor::Derived { subquery, alias, .. } => (None, self.of_query(subquery), alias),
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.add_joined(table_with_joins, found);
                return;
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let mut inner = Vec::new();
                self.add_joined(table_with_joins, &mut inner);
                (None, all(inner.iter()), alias)
            }
            TableFactor::UNNEST { alias, .. } => (None, Columns::default(), alias),
            _ => return,
        };
        let columns = renamed(columns, alias.as_ref());
        let name = alias.as_ref().map(|alias| alias.name.clone()).or(name);
        found.push(Relation { tables: self.tables, name, columns });
    }

    /// The columns of a table by its name, of which `last` is the last part.
    fn of_table(&self, name: &ObjectName, last: &Ident) -> Columns {
        let is_bare = name.0.len() == 1;
        let cte = self.named.iter().rev().find(|(own, _)| is_bare && is_same(own, last));
        match cte {
            Some((_, columns)) => columns.clone(),
            None => {
                let table = match last.quote_style {
                    Some(_) => last.value.clone(),
                    None => last.value.to_lowercase(),
                };
                Columns { named: HashSet::new(), of_tables: BTreeSet::from([table]) }
            }
        }
    }

    fn of_query(&mut self, query: &Query) -> Columns {
        self.enter(query);
        let columns = self.of_body(&query.body);
        self.leave();
        columns
    }

    fn of_body(&mut self, body: &SetExpr) -> Columns {
        match body {
            SetExpr::Select(select) => self.given(select),
            SetExpr::Query(query) => self.of_query(query),
            SetExpr::SetOperation { left, .. } => self.of_body(left),
            _ => Columns::default(),
        }
    }

    /// The output columns of a SELECT.
    fn given(&mut self, select: &Select) -> Columns {
        let relations = self.of(select);
        let mut given = Columns::default();
        for item in &select.projection {
            let more = match item {
                SelectItem::Wildcard(_) => all(relations.iter()),
                SelectItem::QualifiedWildcard(kind, _) => {
                    let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else { continue };
                    let name = last(name);
                    let is_own =
                        |own: &&Relation<'_>| name.as_ref().is_some_and(|name| own.is_called(name));
                    all(relations.iter().filter(is_own))
                }
                SelectItem::ExprWithAliases { aliases, .. } => {
                    Columns { named: aliases.iter().cloned().collect(), ..Columns::default() }
                }
                SelectItem::ExprWithAlias { .. } | SelectItem::UnnamedExpr(_) => {
                    Columns { named: name_of(item).into_iter().collect(), ..Columns::default() }
                }
            };
            given.named.extend(more.named);
            given.of_tables.extend(more.of_tables);
        }
        given
    }
}

/// The name of the output column of a SELECT's item, if it has one.
pub(crate) fn name_of(item: &SelectItem) -> Option<Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last().cloned(),
        _ => None,
    }
}

/// All columns of relations.
fn all<'r, 't: 'r>(relations: impl Iterator<Item = &'r Relation<'t>>) -> Columns {
    let mut all = Columns::default();
    for Relation { columns, .. } in relations {
        all.named.extend(columns.named.iter().cloned());
        all.of_tables.extend(columns.of_tables.iter().cloned());
    }
    all
}

/// Columns, renamed by an alias with a column list.
fn renamed(columns: Columns, alias: Option<&TableAlias>) -> Columns {
    match alias {
        Some(alias) if !alias.columns.is_empty() => {
            let named = alias.columns.iter().map(|column| column.name.clone()).collect();
            Columns { named, of_tables: BTreeSet::new() }
        }
        _ => columns,
    }
}

fn last(name: &ObjectName) -> Option<Ident> {
    name.0.last().and_then(|part| part.as_ident()).cloned()
}

/// Stored tables for tests.
#[cfg(test)]
impl Tables for &[(&'static str, &'static [&'static str])] {
    fn has(&self, table: &str, column: &Ident) -> bool {
        let columns = self.iter().filter(|(own, _)| *own == table).flat_map(|(_, own)| *own);
        columns.into_iter().any(|own| is_same(column, &Ident::new(*own)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{Ident, SetExpr, Statement};
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::{Relations, Tables};

    const TABLES: &[(&str, &[&str])] =
        &[("events", &["event", "received_at"]), ("persons", &["created_at"])];

    /// The names of the relations of a SELECT, each with whether it has a column, and whether it is of events.
    fn found(sql: &str, column: &str) -> Vec<(String, bool, bool)> {
        let tables: &dyn Tables = &TABLES;
        // Deeper than allowed for users.
        let parser = Parser::new(&GenericDialect {}).with_recursion_limit(500);
        let statement = parser.try_with_sql(sql).unwrap().parse_statements().unwrap().pop();
        let Some(Statement::Query(query)) = statement else { panic!("a query") };
        let mut relations = Relations::new(tables);
        relations.enter(&query);
        let SetExpr::Select(select) = &*query.body else { panic!("a SELECT") };
        let found = relations.of(select);
        let shown = found.iter().map(|own| {
            let name = own.name.as_ref().map(|name| name.value.clone());
            (name.unwrap_or_default(), own.has(&Ident::new(column)), own.is_of_events())
        });
        shown.collect()
    }

    #[test]
    fn relations_have_the_columns_that_they_give() {
        for (sql, expected) in [
            ("SELECT 1 FROM events", vec![("events", false, true)]),
            ("SELECT 1 FROM Events e, persons", vec![("e", false, true), ("persons", true, false)]),
            (
                "SELECT 1 FROM filtered.events AS e JOIN (persons AS p JOIN x ON true) ON true",
                vec![("e", false, true), ("p", true, false), ("x", false, false)],
            ),
            ("SELECT 1 FROM (SELECT * FROM events) AS t", vec![("t", false, true)]),
            ("SELECT 1 FROM (SELECT e.* FROM events e, persons) AS t", vec![("t", false, true)]),
            ("SELECT 1 FROM (SELECT *, 1 AS created_at FROM events)", vec![("", true, true)]),
            ("SELECT 1 FROM (SELECT p.Created_At FROM persons p) t", vec![("t", true, false)]),
            ("SELECT 1 FROM (SELECT created_at FROM a UNION SELECT b)", vec![("", true, false)]),
            ("SELECT 1 FROM (VALUES (1)) AS t (created_at)", vec![("t", true, false)]),
            ("SELECT 1 FROM persons AS p (a, b)", vec![("p", false, false)]),
            (
                "WITH persons AS (SELECT event FROM events), e AS (SELECT * FROM events) SELECT 1 FROM persons, e",
                vec![("persons", false, false), ("e", false, true)],
            ),
            ("SELECT 1 FROM range(3) AS r", vec![("r", false, false)]),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(name, has, is)| (name.to_owned(), has, is)).collect();
            assert_eq!(found(sql, "created_at"), expected, "{sql}");
        }
    }

    /// Goal: the sets of columns do not multiply. Method: many nested queries, each with all columns of the next one
    /// twice.
    #[test]
    fn columns_are_there_once() {
        let inner = (0..40).fold("events".to_owned(), |inner, at| {
            format!("(SELECT *, *, {at} AS c{at} FROM {inner}) AS t")
        });
        let sql = format!("SELECT 1 FROM {inner}");
        assert_eq!(found(&sql, "c7"), [("t".to_owned(), true, true)]);
    }
}
