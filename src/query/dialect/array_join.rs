//! `FROM events ARRAY JOIN a AS x, b AS y` of ClickHouse: one row per array element. The parser accepts only tables
//! after JOIN, so before parsing [`written`] turns the arrays into arguments of a table function; [`rewrite`] then
//! replaces that and the table before it by a subquery, which selects all columns of the table and the elements.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Join, JoinOperator, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::dialect::clickhouse::call;
use crate::dialect::relations::{Relations, Tables, is_same};
use crate::dialect::sql_text::identifier;
use crate::dialect::statements;
use crate::dialect::substitution::Substitution;
use crate::dialect::tokens::{is_blank, items, keyword, next};
use crate::dialect::walk::each_expression;
use crate::guard::complexity;

/// The table function whose arguments are the arrays; the aliases of its columns are the names of their elements.
const MARKER: &str = "arrays_of_join";

/// Functions that check that arrays have equal lengths, and that turn an empty array into one null.
const ALIGNED: &str = "arrays_aligned";
const AT_LEAST_ONE: &str = "array_or_null";

/// Maximum joins of a statement that are rewritten; the parser refuses further ones.
const JOINS_MAX: usize = 64;

/// Keywords that end the list of arrays.
const ENDS: [Keyword; 24] = [
    Keyword::ASOF,
    Keyword::CROSS,
    Keyword::EXCEPT,
    Keyword::FETCH,
    Keyword::FORMAT,
    Keyword::FULL,
    Keyword::GLOBAL,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::INNER,
    Keyword::INTERSECT,
    Keyword::JOIN,
    Keyword::LEFT,
    Keyword::LIMIT,
    Keyword::NATURAL,
    Keyword::OFFSET,
    Keyword::ORDER,
    Keyword::PREWHERE,
    Keyword::QUALIFY,
    Keyword::RIGHT,
    Keyword::SETTINGS,
    Keyword::UNION,
    Keyword::WHERE,
    Keyword::WINDOW,
];

/// Index of the first array, if an ARRAY JOIN begins at this token.
fn begins(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let is =
        |at: usize, wanted: Keyword| tokens.get(at).is_some_and(|token| keyword(token) == wanted);
    let join = next(tokens, at + 1)?;
    (is(at, Keyword::ARRAY) && is(join, Keyword::JOIN)).then_some(join + 1)
}

/// The tokens of a statement, with the arrays of each ARRAY JOIN as arguments of a table function.
pub(crate) fn written(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let places: Vec<usize> = (0..tokens.len()).filter_map(|at| begins(&tokens, at)).collect();
    // From the last one to the first: a join may be nested in an array of another.
    for begin in places.into_iter().take(JOINS_MAX).rev() {
        let (items, end) = items(&tokens, begin, |at, item| is_end(&tokens, at, item));
        drop(tokens.splice(begin..end, table(items)));
    }
    tokens
}

/// Whether the list of arrays ends before this token; `item` has the tokens of the last array so far.
fn is_end(tokens: &[TokenWithSpan], at: usize, item: &[TokenWithSpan]) -> bool {
    let Some(own) = tokens.get(at) else { return true };
    if own.token == Token::SemiColon || begins(tokens, at).is_some() {
        return true;
    }
    let own = keyword(own);
    if !ENDS.contains(&own) {
        return false;
    }
    // A keyword may also be an alias, or the name of a function.
    let last = item.iter().rev().find(|token| !is_blank(token));
    let is_name = last.is_some_and(|last| keyword(last) == Keyword::AS);
    let behind = next(tokens, at + 1).and_then(|at| tokens.get(at));
    let is_call = behind.is_some_and(|behind| behind.token == Token::LParen)
        && matches!(own, Keyword::LEFT | Keyword::RIGHT | Keyword::FORMAT);
    !is_name && !is_call
}

/// `arrays_of_join(a, b) AS arrays_of_join (x, y) `, if all arrays have names.
fn table(items: Vec<Vec<TokenWithSpan>>) -> Vec<TokenWithSpan> {
    let wrap = TokenWithSpan::wrap;
    let marker = || wrap(Token::make_word(MARKER, None));
    let blank = || wrap(Token::Whitespace(Whitespace::Space));
    let named: Vec<_> = items.iter().map(|item| array_and_name(item)).collect();
    let names: Option<Vec<TokenWithSpan>> =
        named.iter().map(|named| named.as_ref().map(|(_, name)| name.clone())).collect();
    let mut own = vec![blank(), marker(), wrap(Token::LParen)];
    for (at, (item, named)) in items.iter().zip(&named).enumerate() {
        if at > 0 {
            own.push(wrap(Token::Comma));
        }
        own.extend_from_slice(named.as_ref().map_or(item.as_slice(), |(array, _)| array));
    }
    own.push(wrap(Token::RParen));
    if let Some(names) = names {
        own.extend([blank(), wrap(Token::make_keyword("AS")), blank(), marker()]);
        own.push(wrap(Token::LParen));
        for (at, name) in names.into_iter().enumerate() {
            if at > 0 {
                own.push(wrap(Token::Comma));
            }
            own.push(name);
        }
        own.push(wrap(Token::RParen));
    }
    own.push(blank());
    own
}

/// The array and the name of an item: `a AS x`, or `a`, which is also the name of its elements.
fn array_and_name(item: &[TokenWithSpan]) -> Option<(&[TokenWithSpan], TokenWithSpan)> {
    let mut behind = item.iter().enumerate().rev().filter(|(_, token)| !is_blank(token));
    let (_, name) = behind.next()?;
    if !matches!(name.token, Token::Word(_)) {
        return None;
    }
    match behind.next() {
        None => Some((item, name.clone())),
        Some((at, own)) if keyword(own) == Keyword::AS => Some((item.get(..at)?, name.clone())),
        Some(_) => None,
    }
}

/// The arrays of an ARRAY JOIN; `None` if the factor is another table.
pub(crate) fn arrays(factor: &mut TableFactor) -> Option<&mut Vec<FunctionArg>> {
    match factor {
        TableFactor::Table { name, args: Some(arrays), .. } if is_marker(name) => {
            Some(&mut arrays.args)
        }
        _ => None,
    }
}

/// The names of the elements of an ARRAY JOIN; none if the factor is another table.
pub(crate) fn elements(factor: &TableFactor) -> impl Iterator<Item = &Ident> {
    let alias = match factor {
        TableFactor::Table { name, alias, .. } if is_marker(name) => alias.as_ref(),
        _ => None,
    };
    alias.into_iter().flat_map(|alias| &alias.columns).map(|column| &column.name)
}

fn is_marker(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(name)] if name.value == MARKER)
}

/// Replaces each table with an ARRAY JOIN by a subquery.
///
/// # Errors
///
/// An array has no name, or the join follows more than one table.
pub(crate) fn rewrite(statement: &mut Statement, tables: &dyn Tables) -> Result<()> {
    statements::rewrite(statement, &mut Joins { relations: Relations::new(tables), copied: 0 })
}

struct Joins<'t> {
    relations: Relations<'t>,
    /// Number of expression nodes that were copied.
    copied: usize,
}

impl VisitorMut for Joins<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.leave();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let Select { from, projection, .. } = select;
        for joined in from {
            while joined.joins.iter().any(is_of_arrays) {
                match first_arrays(joined).and_then(|own| self.query(projection, joined, own)) {
                    Ok(query) => joined.relation = query,
                    Err(error) => return ControlFlow::Break(error),
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn refused(why: &str) -> DataFusionError {
    DataFusionError::Plan(why.to_owned())
}

fn is_of_arrays(join: &Join) -> bool {
    matches!(
        join.join_operator,
        JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin | JoinOperator::InnerArrayJoin
    )
}

/// The arrays of one ARRAY JOIN.
struct Arrays {
    /// Each array with the name of its elements.
    named: Vec<(Expr, Ident)>,
    /// Whether rows without elements remain (LEFT).
    is_left: bool,
}

/// Removes the ARRAY JOIN that follows a table directly, and returns its arrays.
fn first_arrays(joined: &mut TableWithJoins) -> Result<Arrays> {
    if !joined.joins.first().is_some_and(is_of_arrays) {
        return Err(refused(
            "ARRAY JOIN stands right behind the first table; of joined tables, arrayJoin(...) in SELECT gives the elements",
        ));
    }
    let join = joined.joins.remove(0);
    let is_left = matches!(join.join_operator, JoinOperator::LeftArrayJoin);
    let unnamed = || refused("ARRAY JOIN takes arrays with names: ARRAY JOIN array AS element");
    let TableFactor::Table { name, args: Some(sent), alias: Some(alias), .. } = join.relation
    else {
        return Err(unnamed());
    };
    if !is_marker(&name) || sent.args.len() != alias.columns.len() {
        return Err(unnamed());
    }
    let array = |argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) => Ok(array),
        _ => Err(unnamed()),
    };
    let arrays = sent.args.into_iter().map(array).collect::<Result<Vec<_>>>()?;
    let names = alias.columns.into_iter().map(|column| column.name);
    Ok(Arrays { named: arrays.into_iter().zip(names).collect(), is_left })
}

/// The alias of the subquery: the one that the table had.
fn alias_of(table: &TableFactor) -> Option<TableAlias> {
    let (name, alias) = match table {
        TableFactor::Table { name, alias, .. } => (name.0.last(), alias),
        TableFactor::Derived { alias, .. } | TableFactor::NestedJoin { alias, .. } => (None, alias),
        _ => return None,
    };
    let alias = alias.as_ref().map(|alias| alias.name.clone());
    let name = alias.or_else(|| name?.as_ident().cloned())?;
    Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None })
}

impl Joins<'_> {
    /// The subquery that selects a table's columns and the elements of arrays; aliases of the surrounding SELECT may be
    /// used as arrays.
    fn query(
        &mut self,
        items: &[SelectItem],
        joined: &TableWithJoins,
        arrays: Arrays,
    ) -> Result<TableFactor> {
        let (table, Arrays { mut named, is_left }) = (&joined.relation, arrays);
        let own = self.relations.of_factor(table);
        let mut substitution = Substitution::within(self.relations.clone(), self.copied);
        for item in items {
            if let SelectItem::ExprWithAlias { expr, alias } = item
                && !own.iter().any(|own| own.has(alias))
                && !named.iter().any(|(_, name)| is_same(name, alias))
            {
                substitution.add(alias.clone(), expr.clone());
            }
        }
        for (array, _) in &mut named {
            substitution.put(array)?;
        }
        self.copied = substitution.copied();
        let replaced: Vec<String> = named
            .iter()
            .filter(|(array, name)| matches!(array, Expr::Identifier(own) if own == name))
            .map(|(_, name)| match name.quote_style {
                Some(_) => identifier(&name.value),
                None => identifier(&name.value.to_lowercase()),
            })
            .collect();
        let but = match replaced.is_empty() {
            true => String::new(),
            false => format!(" EXCLUDE ({})", replaced.join(", ")),
        };
        let mut subquery = statements::query_of(&format!("SELECT *{but} FROM t"))?;
        if let SetExpr::Select(select) = &mut *subquery.body {
            if let Some(joined) = select.from.first_mut() {
                joined.relation = table.clone();
            }
            let first = named.first().map(|(array, _)| array.clone());
            for (at, (array, alias)) in named.into_iter().enumerate() {
                let first = first.as_ref().filter(|_| at > 0);
                let expr = self.element(array, first, is_left)?;
                select.projection.push(SelectItem::ExprWithAlias { expr, alias });
            }
        }
        Ok(TableFactor::Derived { lateral: false, subquery, alias: alias_of(table), sample: None })
    }

    /// The elements of an array, checked to be as long as the first one.
    fn element(&mut self, array: Expr, first: Option<&Expr>, is_left: bool) -> Result<Expr> {
        let array = match first {
            Some(first) => {
                let _ = each_expression(first, |_| {
                    self.copied = self.copied.saturating_add(1);
                    ControlFlow::<()>::Continue(())
                });
                if self.copied > complexity::WORDS_MAX {
                    return Err(refused("the arrays of ARRAY JOIN are too long"));
                }
                call(ALIGNED, vec![array, first.clone()])
            }
            None => array,
        };
        let array = if is_left { call(AT_LEAST_ONE, vec![array]) } else { array };
        Ok(call("unnest", vec![array]))
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;
    use crate::dialect::hogql;
    use crate::dialect::relations::Tables;

    const TABLES: &[(&str, &[&str])] = &[("t", &["a", "b", "tags"])];

    fn rewritten(sql: &str) -> Result<String, String> {
        let mut statement = hogql::statement(sql, 50).map_err(|error| error.to_string())?;
        let tables: &dyn Tables = &TABLES;
        rewrite(&mut statement, tables).map_err(|error| error.to_string())?;
        Ok(statement.to_string())
    }

    #[test]
    fn arrays_are_elements_beside_their_table() {
        for (sql, expected) in [
            (
                "SELECT x FROM t ARRAY JOIN a AS x WHERE x > 1",
                "SELECT x FROM (SELECT *, unnest(a) AS x FROM t) AS t WHERE x > 1",
            ),
            (
                "SELECT x FROM s.t AS u LEFT ARRAY JOIN f(u.a, ',') AS x, [1, 2] AS \"Y\" ORDER BY x",
                "SELECT x FROM (SELECT *, unnest(array_or_null(f(u.a, ','))) AS x, unnest(array_or_null(arrays_aligned([1, 2], \
                 f(u.a, ',')))) AS \"Y\" FROM s.t AS u) AS u ORDER BY x",
            ),
            (
                "SELECT a FROM t ARRAY JOIN a LIMIT 1",
                "SELECT a FROM (SELECT * EXCLUDE (\"a\"), unnest(a) AS a FROM t) AS t LIMIT 1",
            ),
            (
                "SELECT f(a) AS parts, part FROM t INNER ARRAY JOIN parts AS part",
                "SELECT f(a) AS parts, part FROM (SELECT *, unnest((f(a))) AS part FROM t) AS t",
            ),
            (
                "SELECT f(a) AS tags, tag FROM t ARRAY JOIN tags AS tag",
                "SELECT f(a) AS tags, tag FROM (SELECT *, unnest(tags) AS tag FROM t) AS t",
            ),
            (
                "SELECT y FROM t ARRAY JOIN a AS x ARRAY JOIN x AS y JOIN u ON true",
                "SELECT y FROM (SELECT *, unnest(x) AS y FROM (SELECT *, unnest(a) AS x FROM t) AS t) AS t JOIN u ON true",
            ),
            (
                "SELECT (SELECT max(x) FROM t ARRAY JOIN a AS x) FROM (SELECT x FROM t ARRAY JOIN left(a, 1) AS x)",
                "SELECT (SELECT max(x) FROM (SELECT *, unnest(a) AS x FROM t) AS t) FROM \
                 (SELECT x FROM (SELECT *, unnest(left(a, 1)) AS x FROM t) AS t)",
            ),
        ] {
            assert_eq!(rewritten(sql).as_deref(), Ok(expected), "{sql}");
        }
        for (sql, told) in [
            ("SELECT x FROM t JOIN u ON true ARRAY JOIN a AS x", "arrayJoin"),
            ("SELECT x FROM t ARRAY JOIN f(a)", "with names"),
            ("SELECT x FROM t ARRAY JOIN a AS x, f(a)", "with names"),
        ] {
            let refused = rewritten(sql).unwrap_err();
            assert!(refused.contains(told), "{sql}: {refused}");
        }
        let many: Vec<String> = (0..999).map(|n| format!("f(a, g(b, {n})) AS x{n}")).collect();
        let refused = rewritten(&format!("SELECT 1 FROM t ARRAY JOIN {}", many.join(", ")));
        assert!(refused.unwrap_err().contains("too long"));
    }
}
