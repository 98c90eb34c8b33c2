//! Corrects contradictory conditions on the values of one expression, such as `x IN (1) AND x IN (2)`: [`exact`].
//!
//! DataFusion simplifies them to false, and `x NOT IN (1) OR x NOT IN (2)` to true, where the correct value for a null
//! `x` is null: inside a NOT the result differs.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Cast, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::prelude::lit;

/// The values that an expression must, or must not, be one of.
struct Listed<'e> {
    of: &'e Expr,
    /// The type of the values.
    kind: DataType,
    values: HashSet<String>,
    is_negated: bool,
}

/// The expression; if it is the same for every value that is not null, replaced by an equivalent one without lists,
/// which is null for null.
pub(super) fn exact(expression: Expr) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expression else {
        return Transformed::no(expression);
    };
    let is_risky = match (op, is_negated(left), is_negated(right)) {
        (Operator::And, Some(left), Some(right)) => !(left && right),
        (Operator::Or, Some(left), Some(right)) => left || right,
        _ => false,
    };
    let both = is_risky.then(|| Some((listed(left)?, listed(right)?))).flatten();
    let Some((of, true)) = both.and_then(|(left, right)| {
        let of = left.of;
        Some((of, joined(*op, left, right)?.values.is_empty()))
    }) else {
        return Transformed::no(expression);
    };
    let (of, null) = (Box::new(of.clone()), lit(ScalarValue::Boolean(None)));
    Transformed::yes(match op {
        Operator::And => Expr::IsNull(of).and(null),
        _ => Expr::IsNotNull(of).or(null),
    })
}

/// Whether a condition excludes its values (`NOT IN`, `<>`); `None` for other conditions. Inspects only the last
/// operand.
fn is_negated(expression: &Expr) -> Option<bool> {
    match expression {
        Expr::InList(InList { negated, .. }) => Some(*negated),
        Expr::Not(inner) => is_negated(inner).map(|own| !own),
        Expr::BinaryExpr(BinaryExpr { op, right, .. }) => match op {
            Operator::Eq => Some(false),
            Operator::NotEq => Some(true),
            Operator::And | Operator::Or => is_negated(right),
            _ => None,
        },
        _ => None,
    }
}

fn listed(expression: &Expr) -> Option<Listed<'_>> {
    match expression {
        Expr::InList(InList { expr, list, negated }) => {
            let values: Vec<(DataType, String)> = list.iter().map(value).collect::<Option<_>>()?;
            let kind = values.first()?.0.clone();
            let is_one_kind = values.iter().all(|(own, _)| *own == kind);
            let values = values.into_iter().map(|(_, value)| value).collect();
            is_one_kind.then_some(Listed { of: expr, kind, values, is_negated: *negated })
        }
        Expr::Not(inner) => {
            let inner = listed(inner)?;
            Some(Listed { is_negated: !inner.is_negated, ..inner })
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::NotEq), right }) => {
            let (of, (kind, value)) = match (value(left), value(right)) {
                (None, Some(value)) => (left, value),
                (Some(value), None) => (right, value),
                _ => return None,
            };
            let values = HashSet::from([value]);
            Some(Listed { of, kind, values, is_negated: *op == Operator::NotEq })
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let right = listed(right)?;
            joined(*op, listed(left)?, right)
        }
        _ => None,
    }
}

/// Both conditions combined; `None` if they are about different expressions.
fn joined<'e>(op: Operator, left: Listed<'e>, right: Listed<'e>) -> Option<Listed<'e>> {
    if left.of != right.of || left.kind != right.kind {
        return None;
    }
    let is_and = op == Operator::And;
    let (mut values, is_negated) = match (left.is_negated, right.is_negated) {
        (true, true) => (left.values, true),
        (false, false) => (left.values, false),
        // One includes and one excludes values: a set difference, included for AND and excluded for OR.
        (own, _) => {
            let (meant, other) =
                if own { (right.values, left.values) } else { (left.values, right.values) };
            let (kept, others) = if is_and { (meant, other) } else { (other, meant) };
            let values = kept.into_iter().filter(|value| !others.contains(value)).collect();
            return Some(Listed { of: left.of, kind: left.kind, values, is_negated: !is_and });
        }
    };
    if is_and == is_negated {
        values.extend(right.values);
    } else {
        values.retain(|value| right.values.contains(value));
    }
    Some(Listed { of: left.of, kind: left.kind, values, is_negated })
}

/// The type of a literal that is not null, and a text that is unique among values of this type.
fn value(expression: &Expr) -> Option<(DataType, String)> {
    let of = |value: &ScalarValue| (!value.is_null()).then(|| value.to_string());
    let is_text =
        |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match expression {
        Expr::Literal(value, _) => {
            let data_type = value.data_type();
            let kind = if is_text(&data_type) { DataType::Utf8 } else { data_type };
            Some((kind, of(value)?))
        }
        // A text cast to the type of the column.
        Expr::Cast(Cast { expr, field }) if is_text(field.data_type()) => match &**expr {
            Expr::Literal(text, _) if is_text(&text.data_type()) => value(expr),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::Expr;
    use datafusion::prelude::{col, lit};

    use super::exact;

    /// Determined by hand: whether no value matches the condition, or every one does.
    #[test]
    fn conditions_that_exclude_each_other_are_null_of_null() {
        let x = |values: &[i64]| {
            col("x").in_list(values.iter().map(|value| lit(*value)).collect(), false)
        };
        let y = col("y").in_list(vec![lit(2_i64)], false);
        let not = |inner: Expr| Expr::Not(Box::new(inner));
        let out = |values: &[i64]| {
            col("x").in_list(values.iter().map(|value| lit(*value)).collect(), true)
        };
        for (condition, expected) in [
            (x(&[1]).and(x(&[2])), Some("x IS NULL AND Boolean(NULL)")),
            (x(&[1, 2]).and(x(&[3, 4])), Some("x IS NULL AND Boolean(NULL)")),
            (x(&[1]).and(out(&[1, 2])), Some("x IS NULL AND Boolean(NULL)")),
            (out(&[1, 2]).and(x(&[2])), Some("x IS NULL AND Boolean(NULL)")),
            (not(x(&[1])).and(x(&[1])), Some("x IS NULL AND Boolean(NULL)")),
            (
                col("x").eq(lit(1_i64)).and(lit(2_i64).eq(col("x"))),
                Some("x IS NULL AND Boolean(NULL)"),
            ),
            (col("x").eq(lit(1_i64)).or(x(&[2])).and(x(&[3])), Some("x IS NULL AND Boolean(NULL)")),
            (x(&[1, 2]).and(x(&[2, 3])).and(x(&[3, 4])), Some("x IS NULL AND Boolean(NULL)")),
            (out(&[1]).or(out(&[2])), Some("x IS NOT NULL OR Boolean(NULL)")),
            (x(&[1, 2]).or(out(&[1])), Some("x IS NOT NULL OR Boolean(NULL)")),
            (x(&[1, 2]).and(x(&[2])), None),
            (x(&[1]).and(y), None),
            (x(&[1]).or(x(&[2])), None),
            (out(&[1]).and(out(&[2])), None),
            (x(&[1, 2]).and(out(&[1])), None),
            (x(&[1]).or(out(&[1, 2])), None),
            // Values of two types, both of which may equal one value.
            (x(&[1]).and(col("x").in_list(vec![lit(1.0)], false)), None),
        ] {
            let found = exact(condition.clone());
            let text = found.transformed.then(|| found.data.to_string());
            assert_eq!(text.as_deref(), expected, "{condition}");
        }
    }
}
