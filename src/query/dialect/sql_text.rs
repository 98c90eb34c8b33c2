//! Quoting of names and texts for SQL: [`identifier`], [`literal`]. Syntax trees print themselves for people: their
//! text may parse as different SQL, so it is not parsed again.

/// A quoted name.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Expr;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::{identifier, literal};

    fn parsed(text: &str) -> Option<Expr> {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).ok()?;
        parser.parse_expr().ok()
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
}
