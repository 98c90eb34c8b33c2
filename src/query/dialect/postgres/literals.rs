//! Texts in statements: as literals, and with ESCAPE.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};

/// The text that an expression of literals is.
pub(super) fn constant(expression: &Expr) -> Option<String> {
    match expression {
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
            Some(constant(left)? + &constant(right)?)
        }
        Expr::Nested(inner) => constant(inner),
        Expr::Cast { expr, .. } => constant(expr),
        other => literal(other).map(str::to_owned),
    }
}

/// The sign that a literal after ESCAPE is.
pub(super) fn escape_of(value: &Value) -> Option<char> {
    let Value::SingleQuotedString(own) = value else { return None };
    let mut letters = own.chars();
    letters.next().filter(|_| letters.next().is_none())
}

/// A pattern of LIKE with backslashes in place of another sign.
pub(super) fn unescaped(pattern: &str, sign: char) -> String {
    let mut own = String::new();
    for letter in pattern.chars() {
        match letter {
            letter if letter == sign => own.push('\\'),
            '\\' => own.push_str("\\\\"),
            letter => own.push(letter),
        }
    }
    own
}

/// The text that an expression is as a literal, in parentheses or not.
pub(super) fn literal(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Nested(inner) => literal(inner),
        // A text that was cast to another type before.
        Expr::Cast { expr, .. } => literal(expr),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}
