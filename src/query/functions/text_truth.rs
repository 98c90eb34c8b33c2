//! The truth value of a text, as an expression of plans: [`truth`].

use datafusion::functions::expr_fn::lower;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, lit};

/// The truth value of a text, as in filters: `true` and `false`, regardless of case; null for any other text.
pub(crate) fn truth(text: Expr) -> Expr {
    let case = |word: &str, truth: bool| (Box::new(lit(word)), Box::new(lit(truth)));
    let words = vec![case("true", true), case("false", false)];
    Expr::Case(Case::new(Some(Box::new(lower(text))), words, None))
}
