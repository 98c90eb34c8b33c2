//! Persons of events in HogQL: `person.properties.email`, `e.person.created_at`.
//!
//! [`rewrite`] replaces the table of events by its left join with the table of persons, which provides the columns that
//! the query reads. If an event has no row there, it has no person, and these columns are null.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement as SqlStatement, TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::dialect::property_access;
use crate::dialect::property_access::OF_PERSONS;
use crate::dialect::sql_text::{identifier, literal};
use crate::dialect::statements::query_in;
use crate::dialect::walk::walk_mut;

/// The name of an event's person in a query, and the names of tables.
const PERSON: &str = "person";
const PERSONS: &str = "persons";
const EVENTS: &str = "events";

/// Columns of a person, with their names in the table of persons.
const COLUMNS: [(&str, &str); 5] = [
    ("id", "uuid"),
    ("uuid", "uuid"),
    ("created_at", "created_at"),
    ("is_identified", "is_identified"),
    ("properties", "properties"),
];

/// Replaces accesses to persons of events by columns of a join. A table or an alias with the name `person` is left as
/// it is.
///
/// # Errors
///
/// The generated SQL does not parse: a bug.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<()> {
    let Some(query) = query_in(statement) else { return Ok(()) };
    match walk_mut(query, &mut Queries) {
        ControlFlow::Break(error) => Err(DataFusionError::Internal(error.to_string())),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Rewrites each query, inner ones first. Accesses that an inner query leaves refer to a table of a query around it.
struct Queries;

impl VisitorMut for Queries {
    type Break = ParserError;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParserError> {
        let Query { body, order_by, .. } = query;
        match of_body(body, order_by.as_mut()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Rewrites the SELECT of a query, or each of a union. Only a single SELECT can have an ORDER BY on columns that are
/// not in its output.
fn of_body(
    body: &mut SetExpr,
    order_by: Option<&mut OrderBy>,
) -> std::result::Result<(), ParserError> {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { left, right, .. } => {
            of_body(left, None)?;
            return of_body(right, None);
        }
        _ => return Ok(()),
    };
    let mut accesses = Accesses { tables: tables(select), columns: BTreeMap::new() };
    if accesses.tables.iter().any(|table| is(&table.name, PERSON)) {
        return Ok(());
    }
    let _ = walk_mut(select, &mut accesses);
    if let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = order_by {
        let _ = walk_mut(order, &mut accesses);
    }
    joined(select, &accesses)
}

/// A table of a FROM, by its alias or name.
struct Table {
    name: Ident,
    is_events: bool,
}

fn tables(select: &Select) -> Vec<Table> {
    let factors = select.from.iter().flat_map(|table| {
        std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
    });
    let table = |factor: &TableFactor| {
        let (name, alias) = match factor {
            TableFactor::Table { name, alias, .. } => (Some(name), alias),
            TableFactor::Derived { alias, .. } => (None, alias),
            _ => return None,
        };
        let is_events = is_of_events(factor);
        let alias = alias.as_ref().map(|alias| alias.name.clone());
        let last = |name: &ObjectName| name.0.last()?.as_ident().cloned();
        Some(Table { name: alias.or_else(|| last(name?))?, is_events })
    };
    factors.filter_map(table).collect()
}

/// Whether the rows are events, or have all of their columns: `(SELECT *, ... FROM events)`.
fn is_of_events(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table { name, .. } => is_events(name),
        // The join with the table of persons, and further joins after it.
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            matches!(&*table_with_joins.joins, [join] if is_of_events(&join.relation))
        }
        TableFactor::Derived { subquery, .. } => {
            let SetExpr::Select(select) = &*subquery.body else { return false };
            let is_all = |item: &SelectItem| {
                matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
            };
            let [table] = select.from.as_slice() else { return false };
            table.joins.is_empty()
                && select.projection.iter().any(is_all)
                && is_of_events(&table.relation)
        }
        _ => false,
    }
}

fn is_events(name: &ObjectName) -> bool {
    name.0.last().and_then(|part| part.as_ident()).is_some_and(|name| is(name, EVENTS))
}

/// The accesses to persons in one query.
struct Accesses {
    tables: Vec<Table>,
    /// Expressions over the table of persons, by the table of events and the name of the resulting column.
    columns: BTreeMap<(String, String), String>,
}

impl VisitorMut for Accesses {
    type Break = ();

    // Pre-order: `person.properties` is a part of `person.properties['a']`.
    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let (names, keys) = match (property_access::access(expression), &*expression) {
            (Some(access), _) => access,
            (None, Expr::CompoundIdentifier(names)) => (names.clone(), Vec::new()),
            _ => return ControlFlow::Continue(()),
        };
        let (table, column) = match names.as_slice() {
            [person, column] if is(person, PERSON) => {
                (self.tables.iter().find(|table| table.is_events), column)
            }
            [own, person, column] if is(person, PERSON) => {
                let is_own = |table: &&Table| table.is_events && table.name.value == own.value;
                (self.tables.iter().find(is_own), column)
            }
            _ => return ControlFlow::Continue(()),
        };
        let place = COLUMNS.iter().find(|(name, _)| is(column, name));
        let (Some(table), Some((name, column))) = (table, place) else {
            return ControlFlow::Continue(());
        };
        let (name, of) = if keys.is_empty() {
            (format!("{PERSON}.{name}"), (*column).to_owned())
        } else {
            let texts: Vec<String> = keys.iter().map(|key| literal(key)).collect();
            let of = format!("json_as_text({column}, {})", texts.join(", "));
            // `a.b` could be one key, or two.
            let has_point = keys.iter().any(|key| key.contains('.'));
            let path = if has_point { format!("[{}]", texts.join(", ")) } else { keys.join(".") };
            (format!("{OF_PERSONS}{path}"), of)
        };
        let join = joined_as(&table.name.value);
        self.columns.insert((table.name.value.clone(), name.clone()), of);
        *expression = Expr::CompoundIdentifier(vec![quoted(&join), quoted(&name)]);
        ControlFlow::Continue(())
    }
}

/// Whether a name in a query equals this one. Without quotes, case is ignored.
fn is(name: &Ident, own: &str) -> bool {
    match name.quote_style {
        Some(_) => name.value == own,
        None => name.value.eq_ignore_ascii_case(own),
    }
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// The alias of the table of persons that is joined to a table of events.
fn joined_as(table: &str) -> String {
    format!("{table}.{PERSON}")
}

/// Joins each table of events with the columns of persons that are accessed through it.
fn joined(select: &mut Select, accesses: &Accesses) -> std::result::Result<(), ParserError> {
    if accesses.columns.is_empty() {
        return Ok(());
    }
    // `*` must not include the columns of persons.
    let all = |item: SelectItem| match item {
        SelectItem::Wildcard(options) => {
            let table = |table: &Table| {
                let name = ObjectName::from(vec![table.name.clone()]);
                let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
                SelectItem::QualifiedWildcard(kind, options.clone())
            };
            accesses.tables.iter().map(table).collect()
        }
        other => vec![other],
    };
    select.projection = std::mem::take(&mut select.projection).into_iter().flat_map(all).collect();
    let factors = select.from.iter_mut().flat_map(|table| {
        let joins = table.joins.iter_mut().map(|join| &mut join.relation);
        std::iter::once(&mut table.relation).chain(joins)
    });
    for factor in factors {
        let (name, alias) = match &*factor {
            TableFactor::Table { name, alias, .. } => (name.0.last(), alias),
            TableFactor::Derived { alias, .. } => (None, alias),
            _ => continue,
        };
        let name = match alias {
            Some(alias) => Some(&alias.name),
            None => name.and_then(|part| part.as_ident()),
        };
        let Some(name) = name.filter(|_| is_of_events(factor)) else { continue };
        let columns = accesses.columns.iter().filter(|((table, _), _)| *table == name.value);
        let columns: Vec<String> =
            columns.map(|((_, column), of)| format!("{of} AS {}", identifier(column))).collect();
        if columns.is_empty() {
            continue;
        }
        let (columns, join) = (columns.join(", "), identifier(&joined_as(&name.value)));
        let own = match name.quote_style {
            Some(_) => identifier(&name.value),
            None => name.value.clone(),
        };
        // The table factor is moved in as a tree: the user's alias is not parsed again.
        let sql = format!(
            "SELECT 1 FROM ((SELECT uuid AS \"person.key\", {columns} FROM {PERSONS}) AS {join} \
             RIGHT JOIN {EVENTS} ON {join}.\"person.key\" = {own}.person_id)"
        );
        let mut joined = first_factor(&sql)?;
        if let TableFactor::NestedJoin { table_with_joins, .. } = &mut joined
            && let Some(join) = table_with_joins.joins.first_mut()
        {
            join.relation = factor.clone();
        }
        *factor = joined;
    }
    Ok(())
}

/// The first table of the FROM of a query.
fn first_factor(sql: &str) -> std::result::Result<TableFactor, ParserError> {
    let missing = || ParserError::ParserError("a join has no tables".to_owned());
    let statement = Parser::parse_sql(&GenericDialect {}, sql)?.pop().ok_or_else(missing)?;
    let SqlStatement::Query(query) = statement else { return Err(missing()) };
    let SetExpr::Select(select) = *query.body else { return Err(missing()) };
    select.from.into_iter().next().map(|table| table.relation).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::rewrite;

    fn rewritten(sql: &str) -> String {
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql).expect("it parses");
        let statement = statements.pop().expect("one statement");
        let mut statement = Statement::Statement(Box::new(statement));
        rewrite(&mut statement).expect("it is SQL");
        statement.to_string()
    }

    #[test]
    fn persons_are_joined_where_they_are_asked_for() {
        let join = |columns: &str, table: &str, name: &str| {
            format!(
                "((SELECT uuid AS \"person.key\", {columns} FROM persons) AS \"{name}.person\" \
                 RIGHT JOIN {table} ON \"{name}.person\".\"person.key\" = {name}.person_id)"
            )
        };
        let email = "json_as_text(properties, 'email') AS \"person.properties.email\"";
        for (sql, expected) in [
            (
                "SELECT person.properties['email'] FROM events",
                format!(
                    "SELECT \"events.person\".\"person.properties.email\" FROM {}",
                    join(email, "events", "events")
                ),
            ),
            (
                "SELECT *, e.person.created_at FROM events AS e JOIN t ON t.id = e.uuid",
                format!(
                    "SELECT e.*, t.*, \"e.person\".\"person.created_at\" FROM {} JOIN t ON t.id = e.uuid",
                    join("created_at AS \"person.created_at\"", "events AS e", "e")
                ),
            ),
            (
                "SELECT 1 FROM events WHERE person.properties['it''s']['b'] = 'x' ORDER BY person.id",
                format!(
                    "SELECT 1 FROM {} WHERE \"events.person\".\"person.properties.it's.b\" = 'x' \
                     ORDER BY \"events.person\".\"person.id\"",
                    join(
                        "uuid AS \"person.id\", json_as_text(properties, 'it''s', 'b') AS \
                         \"person.properties.it's.b\"",
                        "events",
                        "events"
                    )
                ),
            ),
            (
                "SELECT 1 FROM events AS e WHERE EXISTS (SELECT 1 FROM t WHERE t.x = e.person.properties['email'])",
                format!(
                    "SELECT 1 FROM {} WHERE EXISTS (SELECT 1 FROM t WHERE t.x = \
                     \"e.person\".\"person.properties.email\")",
                    join(email, "events AS e", "e")
                ),
            ),
            (
                "SELECT person.id FROM events UNION SELECT t.person.id FROM (SELECT *, 1 AS x FROM events) AS t",
                format!(
                    "SELECT \"events.person\".\"person.id\" FROM {} UNION SELECT \"t.person\".\"person.id\" FROM {}",
                    join("uuid AS \"person.id\"", "events", "events"),
                    join("uuid AS \"person.id\"", "(SELECT *, 1 AS x FROM events) AS t", "t")
                ),
            ),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }

    #[test]
    fn what_is_no_person_of_an_event_is_left_as_it_is() {
        for sql in [
            "SELECT person.properties['a'] FROM persons AS person",
            "SELECT person.properties['a'] FROM events AS e CROSS JOIN persons AS person",
            "SELECT person.nothing FROM events",
            "SELECT x.person.id FROM events AS e",
            "SELECT person.id FROM (SELECT event FROM events) AS t",
            "SELECT person.id FROM (SELECT * FROM persons) AS t",
            "SELECT person_id, event FROM events",
            "SELECT * FROM events",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
