//! Property names with `$` and dashes, such as those of survey responses: `properties.$survey_response_0196e96d-7705`.
//! Without quotes they would be parsed as subtractions of properties that do not exist, so the result would be null.
//! [`check`] refuses them.

use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Maximum characters of a name in the error message.
const TOLD_MAX_CHARS: usize = 100;

/// Refuses a name with `$` after a dot that is directly followed by a dash and a word. It is parsed as a subtraction if
/// only a number follows, or a qualified name or function call.
///
/// # Errors
///
/// There is such a name.
pub(crate) fn check(tokens: &[TokenWithSpan]) -> Result<(), ParserError> {
    for (at, pair) in tokens.windows(2).enumerate() {
        let [point, name] = pair else { continue };
        let Token::Placeholder(first) = &name.token else { continue };
        let is_name = first.strip_prefix('$').is_some_and(|rest| !rest.is_empty());
        if point.token != Token::Period || !is_name {
            continue;
        }
        let rest = adjacent(tokens, at + 1);
        if is_dashed(rest, tokens.get(at + 2 + rest.len())) {
            let rest: String = rest.iter().map(|token| token.token.to_string()).collect();
            let told: String = format!("{first}{rest}").chars().take(TOLD_MAX_CHARS).collect();
            return Err(ParserError::ParserError(format!(
                "the name {told} has dashes: write it in quotes, as properties.\"{told}\"; a subtraction has blanks around its \
                 sign"
            )));
        }
    }
    Ok(())
}

/// The words, numbers and dashes that follow a token without whitespace.
fn adjacent(tokens: &[TokenWithSpan], at: usize) -> &[TokenWithSpan] {
    let behind = tokens.get(at + 1..).unwrap_or_default();
    let before = tokens.get(at..).unwrap_or_default();
    let belongs = |(token, before): &(&TokenWithSpan, &TokenWithSpan)| {
        let is_part = matches!(
            token.token,
            Token::Minus | Token::Word(_) | Token::Number(..) | Token::Placeholder(_)
        );
        is_part && token.span.start == before.span.end
    };
    let count = behind.iter().zip(before).take_while(belongs).count();
    behind.get(..count).unwrap_or_default()
}

/// Whether the tokens directly after a name continue it; `next` is the token after those.
fn is_dashed(rest: &[TokenWithSpan], next: Option<&TokenWithSpan>) -> bool {
    let rest: Vec<&Token> = rest.iter().map(|token| &token.token).collect();
    match rest.as_slice() {
        [] | [_] | [Token::Minus, Token::Number(..)] => false,
        [Token::Minus, Token::Word(_)] => {
            !matches!(next.map(|next| &next.token), Some(Token::Period | Token::LParen))
        }
        [first, ..] => **first == Token::Minus,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::check;
    use crate::dialect::hogql::Hogql;

    fn checked(text: &str) -> Result<(), String> {
        let tokens = Tokenizer::new(&Hogql, text).tokenize_with_location().unwrap();
        check(&tokens).map_err(|error| error.to_string())
    }

    #[test]
    fn names_with_dashes_are_refused() {
        for (text, told) in [
            (
                "SELECT properties.$survey_response_0196e96d-7705-7d32 FROM events",
                "properties.\"$survey_response_0196e96d-7705-7d32\"",
            ),
            (
                "e.properties.$survey_response_12345678-1234-1234-1234-123456789012",
                "\"$survey_response_12345678-1234-1234-1234-123456789012\"",
            ),
            ("person.properties.$a-b = 1", "\"$a-b\""),
            ("properties.$a-1b", "\"$a-1b\""),
        ] {
            let refused = checked(text).unwrap_err();
            assert!(refused.contains(told), "{text}: {refused}");
        }
        for text in [
            "properties.$a - b",
            "properties.$a -b",
            "properties.$a-1",
            "properties.$a-properties.$b",
            "properties.$a-abs(b)",
            "properties.$a-(b)",
            "properties.\"$a-b-c\"",
            "properties['$a-b-c']",
            "properties.a-b",
            "$1-b",
            "properties.$a -- b",
        ] {
            assert_eq!(checked(text), Ok(()), "{text}");
        }
    }
}
