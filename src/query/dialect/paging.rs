//! The `LIMIT` and `OFFSET` at the end of a query: [`page_of`]. To find out whether there are more rows, a query must
//! fetch one row more than its limit.

use std::ops::Range;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// The rows that a query selects, as far as given by numbers at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Maximum rows; `None` without a numeric limit.
    pub limit: Option<usize>,
    /// Rows skipped before.
    pub offset: usize,
    /// Byte range of the limit's number in the text.
    place: Range<usize>,
}

impl Page {
    /// The query with its limit raised by one row, if it has a limit.
    pub fn with_one_more(&self, sql: &str) -> Option<String> {
        let more = self.limit?.checked_add(1)?;
        let (before, after) = (sql.get(..self.place.start)?, sql.get(self.place.end..)?);
        Some(format!("{before}{more}{after}"))
    }
}

/// The page at the end of a query. Only numbers count: expressions, `FETCH` and the limits of subqueries are ignored.
pub fn page_of(sql: &str) -> Page {
    let mut tokenizer = Tokenizer::new(&GenericDialect {}, sql);
    // Text that cannot be tokenized is refused by the parser, with its own message.
    let Ok(tokens) = tokenizer.tokenize_with_location() else { return Page::default() };
    let is_gap = |token: &Token| matches!(token, Token::Whitespace(_) | Token::EOF);
    let mut tokens: Vec<_> = tokens.into_iter().filter(|one| !is_gap(&one.token)).collect();
    while tokens.last().is_some_and(|one| one.token == Token::SemiColon) {
        tokens.pop();
    }
    // EXPLAIN and the like describe the limit instead of applying it.
    let is_question = tokens.first().is_some_and(|first| match &first.token {
        Token::Word(word) => {
            matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES)
        }
        first => *first == Token::LParen,
    });
    if is_question { page(sql, &tokens).unwrap_or_default() } else { Page::default() }
}

/// `LIMIT` and `OFFSET` at the end, in either order; `OFFSET` may be followed by `ROWS`.
fn page(sql: &str, tokens: &[TokenWithSpan]) -> Option<Page> {
    let (mut rest, mut page) = (tokens, Page::default());
    for _ in 0..2 {
        if let [before @ .., last] = rest
            && is_word(&last.token, &[Keyword::ROW, Keyword::ROWS])
        {
            rest = before;
        }
        let [before @ .., word, number] = rest else { break };
        let Token::Number(digits, false) = &number.token else { break };
        if is_word(&word.token, &[Keyword::LIMIT]) {
            page.limit = Some(digits.parse().ok()?);
            page.place = place(sql, number.span.start)?..place(sql, number.span.end)?;
        } else if is_word(&word.token, &[Keyword::OFFSET]) {
            page.offset = digits.parse().ok()?;
        } else {
            break;
        }
        rest = before;
    }
    Some(page)
}

fn is_word(token: &Token, keywords: &[Keyword]) -> bool {
    matches!(token, Token::Word(word) if keywords.contains(&word.keyword))
}

/// The byte offset of a line and a column, both 1-based; columns count characters.
fn place(sql: &str, wanted: Location) -> Option<usize> {
    let (mut line, mut column) = (1, 1);
    let ends = std::iter::once((sql.len(), '\0'));
    for (at, character) in sql.char_indices().chain(ends) {
        if (line, column) == (wanted.line, wanted.column) {
            return Some(at);
        }
        (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::page_of;

    #[test]
    fn the_last_limit_is_found_and_may_be_one_more() {
        for (sql, limit, offset, more) in [
            ("SELECT 1", None, 0, None),
            ("SELECT 1 LIMIT 10", Some(10), 0, Some("SELECT 1 LIMIT 11")),
            ("select 1\n\tlimit  9 ; ", Some(9), 0, Some("select 1\n\tlimit  10 ; ")),
            ("SELECT 'é\n' LIMIT 5 OFFSET 20", Some(5), 20, Some("SELECT 'é\n' LIMIT 6 OFFSET 20")),
            ("SELECT 1 OFFSET 3 LIMIT 2", Some(2), 3, Some("SELECT 1 OFFSET 3 LIMIT 3")),
            ("SELECT 1 LIMIT 2 OFFSET 3 ROWS", Some(2), 3, Some("SELECT 1 LIMIT 3 OFFSET 3 ROWS")),
            ("SELECT 1 LIMIT 0 -- LIMIT 5", Some(0), 0, Some("SELECT 1 LIMIT 1 -- LIMIT 5")),
            ("(SELECT 1) LIMIT 1", Some(1), 0, Some("(SELECT 1) LIMIT 2")),
            ("WITH t AS (SELECT 1 LIMIT 7) SELECT * FROM t", None, 0, None),
            ("SELECT 1 OFFSET 4", None, 4, None),
            ("SELECT * FROM (SELECT 1 LIMIT 7)", None, 0, None),
            ("SELECT 1 LIMIT 1 + 1", None, 0, None),
            ("SELECT 1 LIMIT ALL", None, 0, None),
            ("SELECT 1 LIMIT 99999999999999999999", None, 0, None),
            ("SELECT \"limit\" FROM t", None, 0, None),
            ("EXPLAIN SELECT 1 LIMIT 5", None, 0, None),
            ("SELECT 'a", None, 0, None),
            ("", None, 0, None),
        ] {
            let page = page_of(sql);
            assert_eq!((page.limit, page.offset), (limit, offset), "{sql}");
            assert_eq!(page.with_one_more(sql).as_deref(), more, "{sql}");
        }
    }
}
