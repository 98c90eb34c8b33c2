//! Refuses statements with parts that are unsafe to plan or would be dropped: [`check`].
//!
//! Some parts take memory or time as soon as a logical plan is made: arguments of table functions are evaluated then,
//! before any rule puts limits around functions; and a CUBE is expanded to a set for each combination of its
//! expressions. Other parts are `ignored`: the parser accepts them, and the planner would drop them.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, ObjectName, Query, Select,
    TableFactor, UnaryOperator, Visitor,
};

use crate::dialect::relations::is_same;
use crate::dialect::walk::walk;
use crate::guard::ignored;

/// Maximum expressions of a CUBE.
const CUBE_MAX: usize = 12;

/// Maximum tables of a statement when each CTE name is expanded to its query.
const EXPANDED_MAX: usize = 1 << 15;

/// Maximum grouping sets of a query times their expressions.
const GROUPED_MAX: usize = 1 << 16;

/// Refuses a statement that takes too much before it is a plan, or has a part that no plan would contain. `state` has
/// the functions.
///
/// # Errors
///
/// The statement is refused.
pub(crate) fn check(statement: &Statement, state: &SessionState) -> Result<()> {
    match statement {
        Statement::Statement(statement) => {
            let refused = walk(&**statement, &mut Refusals { state });
            match refused.is_continue().then(|| walk(&**statement, &mut Expansion::default())) {
                Some(ControlFlow::Continue(())) => Ok(()),
                Some(ControlFlow::Break(why)) => Err(DataFusionError::Plan(why)),
                None => Err(DataFusionError::Plan(refused.break_value().unwrap_or_default())),
            }
        }
        Statement::Explain(explain) => check(&explain.statement, state),
        // Any other statement is not a query.
        _ => Ok(()),
    }
}

/// Stops at what is refused, with the reason.
struct Refusals<'s> {
    state: &'s SessionState,
}

/// Stops if there is a reason.
fn refused(why: Option<impl Into<String>>) -> ControlFlow<String> {
    why.map_or(ControlFlow::Continue(()), |why| ControlFlow::Break(why.into()))
}

impl Visitor for Refusals<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        refused(ignored::of_query(query))
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<String> {
        refused(ignored::of_table(table))?;
        let arguments = match table {
            TableFactor::Table { args: Some(arguments), .. } => &arguments.args,
            TableFactor::Function { args, .. } => args,
            _ => return ControlFlow::Continue(()),
        };
        match arguments.iter().all(is_literal) {
            true => ControlFlow::Continue(()),
            false => refused(Some(
                "functions in FROM take literals: numbers, texts, dates, times and intervals",
            )),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        refused(ignored::of_select(select))?;
        let GroupByExpr::Expressions(groups, _) = &select.group_by else {
            return ControlFlow::Continue(());
        };
        let (mut sets, mut expressions) = (1_usize, 0_usize);
        for group in groups {
            let (own_sets, own_expressions) = extent(group);
            sets = sets.saturating_mul(own_sets);
            expressions = expressions.saturating_add(own_expressions);
        }
        match sets > 1 && sets.saturating_mul(expressions) > GROUPED_MAX {
            true => refused(Some("ROLLUP, CUBE and GROUPING SETS make too many groupings")),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<String> {
        match expression {
            Expr::Cube(_) if extent(expression).1 > CUBE_MAX => {
                refused(Some("CUBE takes at most 12 expressions"))
            }
            Expr::Function(call) => refused(ignored::of_call(call, self.state)),
            Expr::Cast { data_type, .. } => refused(ignored::of_type(data_type)),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Size of a statement after expansion, since each CTE name is replaced by a copy of its query, and CTEs nested in such
/// queries are visited once more at each level.
#[derive(Debug, Default)]
struct Expansion {
    /// The queries around the current place.
    around: Vec<Expanded>,
}

/// A query, as far as it was visited.
#[derive(Debug, Default)]
struct Expanded {
    /// Number of tables that it reads, including all tables of its CTEs.
    tables: usize,
    /// The names of its CTEs that are not visited yet, in reverse order.
    named: Vec<Ident>,
    /// The visited CTEs, with the number of tables that each of them reads.
    known: Vec<(Ident, usize)>,
}

impl Visitor for Expansion {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let mut named: Vec<Ident> = tables.map(|table| table.alias.name.clone()).collect();
        named.reverse();
        self.around.push(Expanded { tables: 1, named, known: Vec::new() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        let Some(ended) = self.around.pop() else { return ControlFlow::Continue(()) };
        if let Some(outer) = self.around.last_mut() {
            outer.tables = outer.tables.saturating_add(ended.tables);
            // The CTEs are visited before the query itself, in their order.
            if let Some(name) = outer.named.pop() {
                outer.known.push((name, ended.tables));
            }
        }
        refused((ended.tables > EXPANDED_MAX).then_some(
            "the queries of WITH are too many in each other, or are named too often: written out they have more than \
             32768 tables",
        ))
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<String> {
        let name = match relation.0.as_slice() {
            [name] => name.as_ident(),
            _ => None,
        };
        let known = name.and_then(|name| {
            let known = self.around.iter().rev().flat_map(|query| query.known.iter().rev());
            known.into_iter().find(|(own, _)| is_same(own, name)).map(|(_, tables)| *tables)
        });
        if let Some(query) = self.around.last_mut() {
            query.tables = query.tables.saturating_add(known.unwrap_or(1));
        }
        ControlFlow::Continue(())
    }
}

/// The number of grouping sets of an item of GROUP BY, and of their expressions.
fn extent(group: &Expr) -> (usize, usize) {
    let count = |sets: &[Vec<Expr>]| sets.iter().map(Vec::len).fold(0, usize::saturating_add);
    match group {
        Expr::Cube(sets) => {
            let bits = u32::try_from(sets.len()).unwrap_or(u32::MAX);
            (1_usize.checked_shl(bits).unwrap_or(usize::MAX), count(sets))
        }
        Expr::Rollup(sets) => (sets.len().saturating_add(1), count(sets)),
        Expr::GroupingSets(sets) => (sets.len().max(1), count(sets)),
        _ => (1, 1),
    }
}

fn is_literal(argument: &FunctionArg) -> bool {
    let (FunctionArg::Unnamed(value)
    | FunctionArg::Named { arg: value, .. }
    | FunctionArg::ExprNamed { arg: value, .. }) = argument;
    matches!(value, FunctionArgExpr::Expr(value) if is_literal_value(value))
}

fn is_literal_value(value: &Expr) -> bool {
    match value {
        Expr::Value(_) | Expr::TypedString(_) => true,
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => {
            is_literal_value(expr)
        }
        Expr::Nested(expr) => is_literal_value(expr),
        Expr::Interval(interval) => is_literal_value(&interval.value),
        Expr::Cast { expr, data_type, .. } => is_narrow(data_type) && is_literal_value(expr),
        _ => false,
    }
}

/// Whether values of a type take a few bytes.
fn is_narrow(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date
            | DataType::Timestamp(..)
            | DataType::Int(_)
            | DataType::Integer(_)
            | DataType::BigInt(_)
            | DataType::Interval { .. }
    )
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion::sql::parser::DFParser;

    use super::check;

    #[test]
    fn statements_that_take_much_before_they_are_plans_are_refused() {
        let columns = |n: usize| (0..n).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ");
        let cube = |n: usize| format!("SELECT count(*) FROM t GROUP BY CUBE({})", columns(n));
        let rollup = |n: usize| format!("SELECT count(*) FROM t GROUP BY ROLLUP({})", columns(n));
        let beside = |n: usize| format!("{}, {}", cube(12), columns(n));
        for (sql, expected) in [
            ("SELECT * FROM range(1, 5)".to_owned(), true),
            ("SELECT * FROM range(-1, +5, 2)".to_owned(), true),
            ("SELECT * FROM generate_series(DATE '2024-01-01', DATE '2024-02-01', INTERVAL '1 day')".to_owned(), true),
            ("SELECT * FROM generate_series('2024-01-01'::timestamp, '2024-02-01'::timestamp, INTERVAL 1 day)".to_owned(), true),
            ("SELECT * FROM range(1, array_length(range(1, 4000000000)))".to_owned(), false),
            ("SELECT * FROM range(1, 2 + 3)".to_owned(), false),
            ("SELECT * FROM range(1, CAST(NULL AS BIGINT[100000000]))".to_owned(), false),
            ("SELECT (SELECT max(value) FROM range(1, length('a')))".to_owned(), false),
            ("EXPLAIN SELECT * FROM range(1, length('a'))".to_owned(), false),
            ("EXPLAIN VERBOSE SELECT * FROM range(1, length('a'))".to_owned(), false),
            ("SELECT * FROM t, LATERAL range(1, length('a'))".to_owned(), false),
            ("WITH r AS (SELECT * FROM range(1, length('a'))) SELECT * FROM r".to_owned(), false),
            ("SELECT range(1, length('a')) FROM t, UNNEST(range(1, length('a')))".to_owned(), true),
            (cube(12), true),
            (cube(13), false),
            (cube(63), false),
            (beside(2), true),
            (beside(5), false),
            (rollup(200), true),
            (rollup(300), false),
            (format!("SELECT count(*) FROM (SELECT 1 FROM t GROUP BY x, CUBE({})) y", columns(30)), false),
            (format!("SELECT 1 FROM t GROUP BY {}", columns(1000)), true),
        ] {
            let statement = DFParser::parse_sql(&sql).unwrap().pop_front().unwrap();
            let state = SessionContext::new().state();
            assert_eq!(check(&statement, &state).is_ok(), expected, "{sql}");
        }
    }
}
