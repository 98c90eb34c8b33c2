//! Names and texts as SQL that is parsed again: [`identifier`], [`literal`]. The syntax tree prints itself for people, and
//! takes `\'` and `''` in a text for what is escaped already, so what it prints may be another text, or more than one.

use datafusion::sql::sqlparser::tokenizer::Token;
use datafusion::sql::sqlparser::tokenizer::Word;

/// A name in quotes.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in quotes.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Whether the syntax tree prints a token as it is.
pub(super) fn prints_itself(token: &Token) -> bool {
    let is_kept = |text: &str, quote: char| {
        ['\\', quote].iter().all(|before| !text.contains(&format!("{before}{quote}")))
    };
    match token {
        Token::SingleQuotedString(text) => is_kept(text, '\''),
        Token::Word(Word { value, quote_style: Some(quote), .. }) => is_kept(value, *quote),
        Token::Whitespace(_) => true,
        // Other kinds of texts, such as `N'a'`, are printed without any escape.
        other => {
            let printed = other.to_string();
            let quotes = printed.matches(['\'', '"']).count();
            quotes == 0 || quotes == 2 && !printed.contains('\\')
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Expr;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::identifier;
    use super::literal;
    use super::prints_itself;

    fn parsed(text: &str) -> Option<Expr> {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).ok()?;
        parser.parse_expr().ok()
    }

    /// Goal: no kind of text becomes more SQL. Method: a literal of each in which a quote is escaped, and one without.
    #[test]
    fn other_kinds_of_texts_have_no_quotes() {
        for (text, is_kept) in [
            ("N'ab'", true),
            ("N'a'' OR 1=1 --'", false),
            ("X'00'", true),
            ("X'00''11'", false),
            ("R'a'", true),
            (r"E'a\'b'", false),
            ("E'a''b'", false),
            ("$$a$$", true),
            ("$$it's$$", false),
            ("'a' -- it's \"", true),
        ] {
            let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap();
            assert_eq!(tokens.iter().all(prints_itself), is_kept, "{text}: {tokens:?}");
            let own = parsed(text).unwrap();
            assert!(!is_kept || parsed(&own.to_string()) == Some(own), "{text}");
        }
    }

    const TEXTS: [&str; 9] =
        ["", "a", "it's", "a\"b", r"\", r"a\'b", r#"a\"b"#, "two '' of them", "two \"\" of them"];

    #[test]
    fn texts_are_parsed_as_they_were() {
        for text in TEXTS {
            let Some(Expr::Value(value)) = parsed(&literal(text)) else { panic!("{text}") };
            assert_eq!(value.value.into_string().as_deref(), Some(text));
            if !text.is_empty() {
                let Some(Expr::Identifier(name)) = parsed(&identifier(text)) else {
                    panic!("{text}")
                };
                assert_eq!(name.value, text);
            }
        }
    }

    /// Goal: what is let through is the same after it was printed.
    #[test]
    fn what_does_not_print_itself_is_known() {
        let mut kept = 0;
        for text in TEXTS.into_iter().flat_map(|text| [literal(text), identifier(text)]) {
            let tokens = Tokenizer::new(&GenericDialect {}, &text).tokenize().unwrap();
            let own = parsed(&text).unwrap();
            if tokens.iter().all(prints_itself) {
                kept += 1;
                assert_eq!(parsed(&own.to_string()), Some(own), "{text}");
            } else {
                assert_ne!(parsed(&own.to_string()), Some(own), "{text}");
            }
        }
        assert_eq!(kept, 2 * TEXTS.len() - 4);
    }
}
