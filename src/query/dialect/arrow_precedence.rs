//! Precedence of the JSON arrows (`->`, `->>`): they bind more tightly than comparisons, as in PostgreSQL, so that
//! `properties ->> 'plan' = 'pro'` compares the property. The parser gives them lower precedence than comparisons, and
//! would look up the key `'plan' = 'pro'`. [`rewrite`] rotates such trees. Expressions in parentheses are left as they
//! are.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, VisitorMut};

use crate::dialect::statements::{query_in, take};
use crate::dialect::walk::walk_mut;

/// Rotates all arrow accesses that have a comparison without parentheses as an operand.
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Some(query) = query_in(statement) {
        let _ = walk_mut(query, &mut Turner);
    }
}

struct Turner;

impl VisitorMut for Turner {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        turn(expression);
        ControlFlow::Continue(())
    }
}

/// Rotates `expression`, of which the operands have been rotated, if it is an arrow access.
fn turn(expression: &mut Expr) {
    let Expr::BinaryOp { left, op, right } = expression else { return };
    if !is_arrow(op) {
        return;
    }
    let (left, op, right) = (take(left), op.clone(), take(right));
    *expression = access(left, op, right);
}

fn access(mut left: Expr, op: BinaryOperator, mut right: Expr) -> Expr {
    // `a -> ('b' = c)` is `(a -> 'b') = c`.
    if let Some(first) = first_operand(&mut right) {
        let key = take(first);
        *first = access(left, op, key);
        return right;
    }
    // `(a = b) -> 'c'` is `a = (b -> 'c')`.
    if let Some(last) = last_operand(&mut left) {
        let value = take(last);
        *last = access(value, op, right);
        return left;
    }
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn is_arrow(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::Arrow | BinaryOperator::LongArrow)
}

fn is_comparison(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
            | BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
            | BinaryOperator::PGLikeMatch
            | BinaryOperator::PGILikeMatch
            | BinaryOperator::PGNotLikeMatch
            | BinaryOperator::PGNotILikeMatch
    )
}

/// The first operand of an expression that binds less tightly than an arrow, or as tightly and to the left.
fn first_operand(expression: &mut Expr) -> Option<&mut Expr> {
    match expression {
        Expr::BinaryOp { left, op, .. }
            if is_comparison(op) || *op == BinaryOperator::StringConcat =>
        {
            Some(left)
        }
        Expr::Like { expr, .. }
        | Expr::ILike { expr, .. }
        | Expr::SimilarTo { expr, .. }
        | Expr::InList { expr, .. }
        | Expr::InSubquery { expr, .. }
        | Expr::Between { expr, .. }
        | Expr::IsNull(expr)
        | Expr::IsNotNull(expr)
        | Expr::IsTrue(expr)
        | Expr::IsNotTrue(expr)
        | Expr::IsFalse(expr)
        | Expr::IsNotFalse(expr)
        | Expr::IsDistinctFrom(expr, _)
        | Expr::IsNotDistinctFrom(expr, _) => Some(expr),
        _ => None,
    }
}

/// The last operand of an expression that binds less tightly than an arrow.
fn last_operand(expression: &mut Expr) -> Option<&mut Expr> {
    match expression {
        Expr::BinaryOp { right, op, .. } if is_comparison(op) => Some(right),
        Expr::Like { pattern, .. } | Expr::ILike { pattern, .. } => Some(pattern),
        Expr::IsDistinctFrom(_, other) | Expr::IsNotDistinctFrom(_, other) => Some(other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::rewrite;
    use crate::dialect::walk::walk;

    fn parsed(condition: &str) -> Statement {
        let sql = format!("SELECT 1 FROM t WHERE {condition}");
        let mut statements = Parser::parse_sql(&GenericDialect {}, &sql).expect("it parses");
        Statement::Statement(Box::new(statements.pop().expect("one statement")))
    }

    /// Goal: arrows have PostgreSQL's precedence. Method: each tree equals that of the text with all parentheses
    /// written out, when parentheses are ignored in both.
    #[test]
    fn accesses_bind_more_tightly_than_comparisons() {
        for (condition, expected) in [
            ("p ->> 'a' = 'b'", "(p ->> 'a') = 'b'"),
            ("'b' = p ->> 'a'", "'b' = (p ->> 'a')"),
            ("p ->> 'a' = q ->> 'b'", "(p ->> 'a') = (q ->> 'b')"),
            ("p -> 'a' ->> 'b' <> 'c'", "((p -> 'a') ->> 'b') <> 'c'"),
            ("p -> 'a' ->> 'b' = q -> 'c' ->> 'd'", "((p -> 'a') ->> 'b') = ((q -> 'c') ->> 'd')"),
            ("p ->> 'a' = 'b' AND q ->> 'c' < 'd'", "((p ->> 'a') = 'b') AND ((q ->> 'c') < 'd')"),
            ("NOT p ->> 'a' = 'b'", "NOT ((p ->> 'a') = 'b')"),
            ("p ->> 'a' IS NOT NULL", "(p ->> 'a') IS NOT NULL"),
            ("p ->> 'a' IS NULL = true", "((p ->> 'a') IS NULL) = true"),
            ("p ->> 'a' LIKE 'b%'", "(p ->> 'a') LIKE 'b%'"),
            ("x LIKE p ->> 'a'", "x LIKE (p ->> 'a')"),
            ("p ->> 'a' IN ('b', 'c')", "(p ->> 'a') IN ('b', 'c')"),
            ("p ->> 'a' NOT BETWEEN 'b' AND 'c'", "(p ->> 'a') NOT BETWEEN 'b' AND 'c'"),
            ("p ->> 'a' IS DISTINCT FROM q ->> 'b'", "(p ->> 'a') IS DISTINCT FROM (q ->> 'b')"),
            ("p ->> 'a' || 'b' = 'cb'", "((p ->> 'a') || 'b') = 'cb'"),
            ("p ->> 'a' ~ 'b'", "(p ->> 'a') ~ 'b'"),
            ("p ->> ('a' = 'b')", "p ->> ('a' = 'b')"),
            ("(x = p) ->> 'a'", "(x = p) ->> 'a'"),
            ("p ->> 'a'::text = 'b'", "(p ->> ('a'::text)) = 'b'"),
            ("(p ->> 'a')::float > 1", "((p ->> 'a')::float) > 1"),
        ] {
            let mut found = parsed(condition);
            rewrite(&mut found);
            let expected = parsed(expected);
            assert_eq!(shape(&found), shape(&expected), "{condition}: {found}");
        }
    }

    /// The tree without source positions and without parentheses that group two operands.
    fn shape(statement: &Statement) -> String {
        use std::ops::ControlFlow;

        use datafusion::sql::sqlparser::ast::{Expr, Visitor};

        struct Shape(String);
        impl Visitor for Shape {
            type Break = ();
            fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
                if !matches!(expression, Expr::Nested(_)) {
                    self.0.push('(');
                }
                ControlFlow::Continue(())
            }
            fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
                match expression {
                    Expr::Nested(_) => {}
                    Expr::Identifier(_) | Expr::Value(_) => {
                        self.0.push_str(&format!("{expression})"));
                    }
                    Expr::BinaryOp { op, .. } => self.0.push_str(&format!(" {op})")),
                    other => {
                        let name = format!("{other:?}");
                        let name = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
                        self.0.push_str(&format!(" {name})"));
                    }
                }
                ControlFlow::Continue(())
            }
        }
        let Statement::Statement(query) = statement else { panic!("a query") };
        let mut shape = Shape(String::new());
        let _ = walk(&**query, &mut shape);
        shape.0
    }
}
