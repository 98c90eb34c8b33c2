//! `WITH 1 AS x SELECT x`: named expressions as in ClickHouse. The parser accepts only queries in WITH, so before
//! parsing [`written`] wraps each expression in a query, and [`rewrite`] substitutes the expressions for their names.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, SelectItem, SetExpr,
    VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::dialect::relations::{Relations, Tables};
use crate::dialect::statements;
use crate::dialect::statements::take;
use crate::dialect::substitution::Substitution;
use crate::dialect::tokens::{is_blank, items, keyword};

/// The function of which a call is the only column of a query that wraps an expression.
const MARKER: &str = "constant_of_with";

/// Maximum WITH clauses of a statement that are rewritten; the parser refuses further ones.
const WITHS_MAX: usize = 64;

/// The tokens of a statement, with each named expression of a WITH wrapped in a query.
pub(crate) fn written(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let (mut at, mut withs) = (0, 0);
    while let Some(token) = tokens.get(at) {
        at += 1;
        if keyword(token) != Keyword::WITH || !begins_query(&tokens, at - 1) {
            continue;
        }
        withs += 1;
        if withs > WITHS_MAX {
            break;
        }
        let (items, end) = items(&tokens, at, |at, _| begins_select(&tokens, at));
        if items.iter().any(|item| constant(item).is_some()) {
            let mut own = Vec::with_capacity(end - at + items.len() * 8);
            for (place, item) in items.into_iter().enumerate() {
                if place > 0 {
                    own.push(TokenWithSpan::wrap(Token::Comma));
                }
                match constant(&item) {
                    Some((expression, name)) => own.extend(query(expression, name)),
                    None => own.extend(item),
                }
            }
            drop(tokens.splice(at..end, own));
        }
    }
    tokens
}

/// Whether the WITH at this index begins a query.
fn begins_query(tokens: &[TokenWithSpan], at: usize) -> bool {
    let mut before = tokens.get(..at).unwrap_or_default().iter().rev();
    let Some(token) = before.find(|token| !is_blank(token)) else { return true };
    matches!(token.token, Token::LParen | Token::SemiColon)
        || matches!(keyword(token), Keyword::EXPLAIN | Keyword::ANALYZE | Keyword::VERBOSE)
}

/// Whether the main query of a WITH begins at this index.
fn begins_select(tokens: &[TokenWithSpan], at: usize) -> bool {
    let own = tokens.get(at).map(keyword);
    matches!(own, Some(Keyword::SELECT | Keyword::FROM | Keyword::VALUES))
}

/// The expression and the name of an item `1 AS x`; `None` for a query, `x AS (...)`.
fn constant(item: &[TokenWithSpan]) -> Option<(&[TokenWithSpan], &TokenWithSpan)> {
    let mut behind = item.iter().enumerate().rev().filter(|(_, token)| !is_blank(token));
    let (_, name) = behind.next()?;
    let (at, own) = behind.next()?;
    let is_name = matches!(&name.token, Token::Word(_));
    let expression = item.get(..at).filter(|_| is_name && keyword(own) == Keyword::AS)?;
    expression.iter().any(|token| !is_blank(token)).then_some((expression, name))
}

/// `x AS (SELECT constant_of_with(1)) `
fn query(expression: &[TokenWithSpan], name: &TokenWithSpan) -> Vec<TokenWithSpan> {
    let word = |text: &str| TokenWithSpan::wrap(Token::make_keyword(text));
    let mut own = vec![
        name.clone(),
        word("AS"),
        TokenWithSpan::wrap(Token::LParen),
        word("SELECT"),
        TokenWithSpan::wrap(Token::make_word(MARKER, None)),
        TokenWithSpan::wrap(Token::LParen),
    ];
    own.extend(expression.iter().cloned());
    own.extend([Token::RParen, Token::RParen].map(TokenWithSpan::wrap));
    own.push(TokenWithSpan::wrap(Token::Whitespace(Whitespace::Space)));
    own
}

/// Substitutes the expressions of each WITH in its query.
///
/// # Errors
///
/// The statement becomes too long.
pub(crate) fn rewrite(statement: &mut Statement, tables: &dyn Tables) -> Result<()> {
    let relations = Relations::new(tables);
    statements::rewrite(statement, &mut Constants { relations, copied: 0 })
}

struct Constants<'t> {
    relations: Relations<'t>,
    /// Number of nodes of expressions so far.
    copied: usize,
}

impl VisitorMut for Constants<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        let relations = self.relations.clone();
        self.relations.leave();
        let Some(with) = &mut query.with else { return ControlFlow::Continue(()) };
        let mut substitution = Substitution::within(relations, self.copied);
        let mut tables = Vec::new();
        for mut table in std::mem::take(&mut with.cte_tables) {
            if let Err(error) = substitution.put(&mut table.query) {
                return ControlFlow::Break(error);
            }
            match expression_of(&mut table) {
                Some(expression) => substitution.add(table.alias.name, expression),
                None => tables.push(table),
            }
        }
        if substitution.is_empty() {
            with.cte_tables = tables;
            return ControlFlow::Continue(());
        }
        if tables.is_empty() {
            query.with = None;
        } else {
            with.cte_tables = tables;
        }
        let put = substitution.put_into_own(query);
        self.copied = substitution.copied();
        match put {
            Err(error) => ControlFlow::Break(error),
            Ok(()) => ControlFlow::Continue(()),
        }
    }
}

/// The expression that a query of WITH wraps.
fn expression_of(table: &mut Cte) -> Option<Expr> {
    let SetExpr::Select(select) = &mut *table.query.body else { return None };
    let [SelectItem::UnnamedExpr(Expr::Function(call))] = select.projection.as_mut_slice() else {
        return None;
    };
    let is_marker = call.name.to_string() == MARKER;
    let FunctionArguments::List(list) = &mut call.args else { return None };
    match list.args.as_mut_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expression))] if is_marker => {
            Some(take(expression))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;
    use crate::dialect::hogql;
    use crate::dialect::relations::Tables;

    const TABLES: &[(&str, &[&str])] = &[("u", &["n"])];

    fn rewritten(sql: &str) -> Result<String, String> {
        let mut statement = hogql::statement(sql, 50).map_err(|error| error.to_string())?;
        let tables: &dyn Tables = &TABLES;
        rewrite(&mut statement, tables).map_err(|error| error.to_string())?;
        Ok(statement.to_string())
    }

    #[test]
    fn expressions_stand_where_their_names_do() {
        for (sql, expected) in [
            ("WITH 1 AS x SELECT x", "SELECT (1) AS x"),
            ("WITH 1 AS x, x + 1 AS y SELECT y AS z, X", "SELECT ((1) + 1) AS z, (1) AS X"),
            (
                "WITH toDate(timestamp) AS day SELECT day, count() FROM events GROUP BY day ORDER BY day",
                "SELECT (toDate(timestamp)) AS day, count() FROM events GROUP BY (toDate(timestamp)) ORDER BY (toDate(timestamp))",
            ),
            (
                "WITH t AS (SELECT 1 AS a), 2 AS b SELECT a + b FROM t",
                "WITH t AS (SELECT 1 AS a) SELECT a + (2) FROM t",
            ),
            (
                "SELECT * FROM (WITH 'a' AS x SELECT 1 WHERE x = 'a') WHERE x",
                "SELECT * FROM (SELECT 1 WHERE ('a') = 'a') WHERE x",
            ),
            (
                "WITH (SELECT max(a) FROM t) AS m SELECT m - 1",
                "SELECT ((SELECT max(a) FROM t)) - 1",
            ),
            // A number literal would be taken as the position of a column.
            (
                "WITH 2 AS x, 'a' AS y SELECT n, x FROM u GROUP BY n, x, y ORDER BY x",
                "SELECT n, (2) AS x FROM u GROUP BY n, (2) + 0, ('a') ORDER BY (2) + 0",
            ),
            ("EXPLAIN WITH 1 AS x SELECT x + 1", "EXPLAIN SELECT (1) + 1"),
            // Columns of an inner query's tables take precedence.
            (
                "WITH 5 AS n SELECT a, n FROM (SELECT n AS a FROM u)",
                "SELECT a, (5) AS n FROM (SELECT n AS a FROM u)",
            ),
            (
                "WITH 5 AS n SELECT a FROM t WHERE a > n AND a IN (SELECT n FROM u WHERE n > (SELECT n)) AND b IN (SELECT n FROM t ORDER BY n)",
                "SELECT a FROM t WHERE a > (5) AND a IN (SELECT n FROM u WHERE n > (SELECT n)) AND b IN (SELECT (5) AS n FROM t ORDER BY (5) + 0)",
            ),
            (
                "WITH 5 AS n, t AS (SELECT 1 AS n) SELECT a FROM (SELECT n AS a FROM t) JOIN (SELECT n AS b) ON true",
                "WITH t AS (SELECT 1 AS n) SELECT a FROM (SELECT n AS a FROM t) JOIN (SELECT (5) AS b) ON true",
            ),
            (
                "WITH t AS (SELECT lower(a)) SELECT * FROM t",
                "WITH t AS (SELECT lower(a)) SELECT * FROM t",
            ),
        ] {
            assert_eq!(rewritten(sql).as_deref(), Ok(expected), "{sql}");
        }
        for sql in ["WITH AS x SELECT x", "WITH 1 x SELECT x", "WITH 1 AS x, SELECT x"] {
            assert!(rewritten(sql).is_err(), "{sql}");
        }
        let doubled: Vec<String> =
            (1..40).map(|n| format!("x{} + x{} AS x{n}", n - 1, n - 1)).collect();
        let sql = format!("WITH 1 AS x0, {} SELECT x39", doubled.join(", "));
        assert!(rewritten(&sql).unwrap_err().contains("too long"));
    }
}
