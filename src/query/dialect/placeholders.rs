//! Substitution of values for placeholders, such as `{city}`, in the text of a query: [`filled`].

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use serde_json::{Map, Value};

use crate::dialect::offsets::Offsets;
use crate::dialect::{filtered, sql_text};
use crate::kernel::error::QueryError;

/// The object with the values of variables, and the prefix of their names.
const VARIABLES: &str = "variables";

/// The placeholder for the filters of the query, unless there is a value of this name.
const FILTERS: &str = "filters";

/// The query with literals in place of placeholders. Lists become lists in parentheses, as used with `IN`. The value of
/// a variable, `{variables.city}`, is read from the object `variables` of the values.
///
/// # Errors
///
/// A placeholder has no value, or its value cannot be written as a literal.
pub fn filled(sql: &str, values: &Map<String, Value>) -> Result<String, QueryError> {
    // Text that cannot be tokenized is refused by the parser, with its own message.
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
    let tokens = tokens.unwrap_or_default();
    let mut offsets = Offsets::of(sql);
    let (mut text, mut copied) = (String::with_capacity(sql.len()), 0);
    for (at, open) in tokens.iter().enumerate() {
        let Some((name, value, close)) = placeholder(&tokens, at, values) else { continue };
        let value = match value {
            Some(value) => literal(&name, value)?,
            None if name == FILTERS => format!("{}()", filtered::MARKER),
            None => {
                let why = format!("the placeholder {{{name}}} has no value in `values`");
                return Err(QueryError::Invalid(why));
            }
        };
        let (start, end) = (offsets.offset(open.span.start), offsets.offset(close.span.end));
        text.push_str(sql.get(copied..start).unwrap_or_default());
        text.push_str(&value);
        copied = end;
    }
    text.push_str(sql.get(copied..).unwrap_or_default());
    Ok(text)
}

/// The placeholder that begins at a token: its name, its value, and its last token.
fn placeholder<'t, 'v>(
    tokens: &'t [TokenWithSpan],
    at: usize,
    values: &'v Map<String, Value>,
) -> Option<(String, Option<&'v Value>, &'t TokenWithSpan)> {
    let token = |place: usize| tokens.get(at.saturating_add(place)).map(|token| &token.token);
    let (Some(Token::LBrace), Some(Token::Word(first))) = (token(0), token(1)) else { return None };
    match (token(2), token(3), token(4)) {
        (Some(Token::RBrace), ..) => {
            Some((first.value.clone(), values.get(&first.value), tokens.get(at + 2)?))
        }
        (Some(Token::Period), Some(Token::Word(second)), Some(Token::RBrace))
            if first.value == VARIABLES =>
        {
            let value = values.get(VARIABLES).and_then(|all| all.get(&second.value));
            Some((format!("{VARIABLES}.{}", second.value), value, tokens.get(at + 4)?))
        }
        _ => None,
    }
}

fn literal(name: &str, value: &Value) -> Result<String, QueryError> {
    match value {
        Value::Null => Ok("NULL".to_owned()),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::String(text) => Ok(sql_text::literal(text)),
        Value::Array(items) if !items.is_empty() && !items.iter().any(Value::is_array) => {
            let items: Result<Vec<_>, _> = items.iter().map(|item| literal(name, item)).collect();
            Ok(format!("({})", items?.join(", ")))
        }
        Value::Array(_) | Value::Object(_) => {
            let why = format!(
                "the value of the placeholder {{{name}}} is no text, number, truth value or list of these"
            );
            Err(QueryError::Invalid(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::filled;

    #[test]
    fn placeholders_become_literals_and_all_else_stays() {
        let values = json!({"a": "it's", "b": r"x\' OR 1=1 --", "c": "two '' of them", "n": 1.5, "t": true, "none": null, "l": ["x", 2], "o": {}, "e": [], "variables": {"city": "Rome", "n": 2}});
        let values = values.as_object().unwrap();
        for (sql, expected) in [
            ("SELECT {a}, {n},{t} , {none}", Some("SELECT 'it''s', 1.5,true , NULL")),
            ("é\nx IN {l} -- {a}\nü{n}", Some("é\nx IN ('x', 2) -- {a}\nü1.5")),
            (
                "'{a}', \"{a}\", E'\\n', 'a''b', $1, {n}",
                Some("'{a}', \"{a}\", E'\\n', 'a''b', $1, 1.5"),
            ),
            ("SELECT {b}, {c}", Some(r"SELECT 'x\'' OR 1=1 --', 'two '''' of them'")),
            ("SELECT {missing}", None),
            ("WHERE {filters} AND {a}", Some("WHERE filters_of_the_query() AND 'it''s'")),
            ("SELECT {o}", None),
            ("SELECT {e}", None),
            // Only a name directly between the braces is a placeholder.
            ("SELECT {'a': 1}, { a }", Some("SELECT {'a': 1}, { a }")),
            ("SELECT 'open", Some("SELECT 'open")),
            ("SELECT {variables.city}, {variables.n}", Some("SELECT 'Rome', 2")),
            ("SELECT {variables.missing}", None),
            ("SELECT {variables}", None),
            ("SELECT {a.b}, {n}", Some("SELECT {a.b}, 1.5")),
        ] {
            assert_eq!(filled(sql, values).ok().as_deref(), expected, "{sql}");
        }
    }
}
