//! `{filters}` in HogQL: the filters that are sent along with a query, such as those of a dashboard. The placeholder
//! becomes a call of [`MARKER`]; [`rewrite`] removes the call from a WHERE, and makes that SELECT read only the events
//! that match ([`with_filtered`](crate::kernel::view::View::with_filtered)).

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, ObjectName, ObjectNamePart, Select, TableFactor, Value, VisitorMut,
};

use crate::dialect::statements;

/// The function of which a call represents `{filters}`.
pub(crate) const MARKER: &str = "filters_of_the_query";

/// The schema of the table of matching events.
pub(crate) const SCHEMA: &str = "filtered";

const EVENTS: &str = "events";

/// Removes the markers from a statement. With `is_filtered`, SELECTs with a marker read the matching events.
///
/// # Errors
///
/// A marker is not in the WHERE of a SELECT from events, alone or as an operand of AND.
pub(crate) fn rewrite(statement: &mut Statement, is_filtered: bool) -> Result<()> {
    statements::rewrite(statement, &mut Markers { is_filtered })
}

struct Markers {
    is_filtered: bool,
}

impl VisitorMut for Markers {
    type Break = DataFusionError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let is_marked = select.selection.as_mut().is_some_and(without_marker);
        if is_marked && !narrowed(select, self.is_filtered) {
            return ControlFlow::Break(refusal());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        match is_marker(expression) {
            true => ControlFlow::Break(refusal()),
            false => ControlFlow::Continue(()),
        }
    }
}

fn refusal() -> DataFusionError {
    let why = "{filters} stands in the WHERE of a SELECT from events, alone or with AND";
    DataFusionError::Plan(why.to_owned())
}

fn is_marker(expression: &Expr) -> bool {
    let Expr::Function(function) = expression else { return false };
    let [name] = function.name.0.as_slice() else { return false };
    name.as_ident().is_some_and(|name| name.value == MARKER)
}

/// Replaces markers among the operands of a conjunction. Returns whether there were any.
fn without_marker(condition: &mut Expr) -> bool {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let is_left = without_marker(left);
            without_marker(right) || is_left
        }
        Expr::Nested(inner) => without_marker(inner),
        _ if is_marker(condition) => {
            *condition = Expr::Value(Value::Boolean(true).into());
            true
        }
        _ => false,
    }
}

/// Makes a SELECT read the matching events. Returns whether it reads events at all.
fn narrowed(select: &mut Select, is_filtered: bool) -> bool {
    let mut reads_events = false;
    for table in &mut select.from {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut table.relation).chain(joined) {
            let TableFactor::Table { name, args: None, .. } = factor else { continue };
            let [part] = name.0.as_slice() else { continue };
            let is_events =
                part.as_ident().is_some_and(|name| name.value.eq_ignore_ascii_case(EVENTS));
            if is_events {
                reads_events = true;
                if is_filtered {
                    let parts =
                        [SCHEMA, EVENTS].map(|part| ObjectNamePart::Identifier(Ident::new(part)));
                    *name = ObjectName(parts.to_vec());
                }
            }
        }
    }
    reads_events
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::rewrite;

    #[test]
    fn markers_narrow_the_events_of_their_select() {
        for (sql, expected) in [
            (
                "SELECT a FROM events WHERE filters_of_the_query()",
                Some("SELECT a FROM filtered.events WHERE true"),
            ),
            (
                "SELECT a FROM Events AS e JOIN persons AS p ON b WHERE c AND (filters_of_the_query() AND d)",
                Some(
                    "SELECT a FROM filtered.events AS e JOIN persons AS p ON b WHERE c AND (true AND d)",
                ),
            ),
            (
                "SELECT (SELECT count(*) FROM events) FROM (SELECT 1 FROM events WHERE filters_of_the_query()) AS t",
                Some(
                    "SELECT (SELECT count(*) FROM events) FROM (SELECT 1 FROM filtered.events WHERE true) AS t",
                ),
            ),
            ("SELECT a FROM events WHERE b", Some("SELECT a FROM events WHERE b")),
            ("SELECT a FROM events WHERE b OR filters_of_the_query()", None),
            ("SELECT a FROM events WHERE NOT filters_of_the_query()", None),
            ("SELECT filters_of_the_query() FROM events", None),
            ("SELECT a FROM sessions WHERE filters_of_the_query()", None),
            ("SELECT a WHERE filters_of_the_query()", None),
        ] {
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            let rewritten = rewrite(&mut statement, true).ok().map(|()| statement.to_string());
            assert_eq!(rewritten.as_deref(), expected, "{sql}");
        }
        let sql = "SELECT a FROM events WHERE filters_of_the_query()";
        let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
        rewrite(&mut statement, false).unwrap();
        assert_eq!(statement.to_string(), "SELECT a FROM events WHERE true");
    }
}
