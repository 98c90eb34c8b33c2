//! Limits the size of SQL that is planned: [`check`]. Plans are trees that are walked recursively, and a chain such as
//! `1 + 1 + ...` is a tree as deep as it is long: exceeding the stack of a thread would crash the process. Lists of
//! values are flat, and therefore not counted.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Statement};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::walk::each_expression;
use crate::kernel::error::QueryError;

/// Maximum words and operators of a query; literals, commas and parentheses are not counted.
pub const WORDS_MAX: usize = 2000;

/// Stack size of a thread that plans and runs queries. A chain of [`WORDS_MAX`] operators uses about a quarter of it.
pub const STACK_BYTES: usize = 64 << 20;

/// Refuses a query that is too long to be planned.
///
/// # Errors
///
/// It has more than [`WORDS_MAX`] words and operators.
pub fn check(sql: &str) -> Result<(), QueryError> {
    check_in(&GenericDialect {}, sql)
}

/// The same for SQL that is parsed in another dialect than HogQL, which has the tokens of the generic one. It must be the
/// one of the parser: what no other dialect can tokenize would have no words.
///
/// # Errors
///
/// It has more than [`WORDS_MAX`] words and operators.
pub(crate) fn check_in(dialect: &dyn Dialect, sql: &str) -> Result<(), QueryError> {
    let words = words_in(dialect, sql);
    if words > WORDS_MAX {
        return Err(QueryError::Invalid(format!(
            "the query has {words} words and operators, of at most {WORDS_MAX}"
        )));
    }
    Ok(())
}

/// Number of words and operators of SQL. It is 0 for text that cannot be tokenized: the parser refuses that, with its
/// own message.
pub fn words(sql: &str) -> usize {
    words_in(&GenericDialect {}, sql)
}

fn words_in(dialect: &dyn Dialect, sql: &str) -> usize {
    let tokens = Tokenizer::new(dialect, sql).tokenize().unwrap_or_default();
    tokens.iter().filter(|token| counts(token)).count()
}

/// Running number of words and operators, up to and including each token.
pub(crate) fn counted(tokens: &[TokenWithSpan]) -> impl Iterator<Item = usize> {
    tokens.iter().scan(0_usize, |words, own| {
        *words = words.saturating_add(usize::from(counts(&own.token)));
        Some(*words)
    })
}

/// Refuses a statement that has become too long: no tree in it is deeper than the number of its expressions.
///
/// # Errors
///
/// It has more than [`WORDS_MAX`] expressions that are not constants.
pub(crate) fn check_tree(query: &Statement) -> Result<(), QueryError> {
    let mut expressions = 0_usize;
    let counted = each_expression(query, |expression| {
        let is_flat = matches!(expression, Expr::Value(_) | Expr::Nested(_));
        expressions = expressions.saturating_add(usize::from(!is_flat));
        match expressions > WORDS_MAX {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match counted {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(QueryError::Invalid(format!(
            "with its functions written out, the query has more than {WORDS_MAX} words and operators"
        ))),
    }
}

fn counts(token: &Token) -> bool {
    !matches!(
        token,
        Token::Whitespace(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::NationalStringLiteral(_)
            | Token::EscapedStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::Comma
            | Token::SemiColon
            | Token::LParen
            | Token::RParen
            | Token::EOF
    )
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::{WORDS_MAX, check, check_in};

    #[test]
    fn chains_are_bounded_and_lists_are_free() {
        let chain = |n: usize| format!("SELECT {}1", "1+".repeat(n));
        assert!(check(&chain(WORDS_MAX - 1)).is_ok());
        assert!(check(&chain(WORDS_MAX)).is_err());
        for (sql, expected) in [
            (format!("SELECT 1 WHERE 1 IN ({}1)", "1, ".repeat(100_000)), true),
            (format!("VALUES {}('a')", "('a'), ".repeat(100_000)), true),
            (format!("SELECT 1{}", " IS NULL".repeat(WORDS_MAX)), false),
            (format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(WORDS_MAX)), false),
            (format!("SELECT 1 FROM t{}", ", t".repeat(WORDS_MAX)), false),
            ("SELECT 'a".to_owned(), true),
            (String::new(), true),
        ] {
            assert_eq!(check(&sql).is_ok(), expected, "{}", &sql[..sql.len().min(40)]);
        }
    }

    /// Goal: no sign of one dialect hides the words of a statement. Here it is an operator, elsewhere an open quote.
    #[test]
    fn words_are_those_of_the_dialect() {
        let sql = |n: usize| format!("SELECT 1 FROM pg_class WHERE 1 <` 1{}", "+1".repeat(n));
        assert!(check_in(&PostgreSqlDialect {}, &sql(WORDS_MAX / 2)).is_ok());
        assert!(check_in(&PostgreSqlDialect {}, &sql(WORDS_MAX)).is_err());
    }
}
