//! Helpers on tokens, for rewrites before parsing: WITH of expressions and ARRAY JOIN.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The keyword of a token; none for a quoted name.
pub(crate) fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

pub(crate) fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// The index of the next token that is not whitespace.
pub(crate) fn next(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let mut rest = tokens.get(from..)?.iter();
    rest.position(|token| !is_blank(token)).map(|at| from + at)
}

/// The items of a comma-separated list that begins at an index, and the index of its end: at an unmatched closing
/// bracket, or where `is_end` returns true for an index outside of brackets and the tokens of the last item so far.
pub(crate) fn items(
    tokens: &[TokenWithSpan],
    from: usize,
    is_end: impl Fn(usize, &[TokenWithSpan]) -> bool,
) -> (Vec<Vec<TokenWithSpan>>, usize) {
    let (mut items, mut item, mut depth) = (Vec::new(), Vec::new(), 0_usize);
    let mut end = tokens.len();
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => {
                    end = at;
                    break;
                }
            },
            Token::Comma if depth == 0 => {
                items.push(std::mem::take(&mut item));
                continue;
            }
            _ if depth == 0 && is_end(at, &item) => {
                end = at;
                break;
            }
            _ => {}
        }
        item.push(token.clone());
    }
    items.push(item);
    (items, end)
}
