//! What conditions of events ask of beside the columns of these: properties of their sessions, and expressions of SQL. A
//! condition names a column that a plan adds when it has the events: [`with_columns`].

use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{ident, lit};

use crate::dialect::expression::{Expression, Taken};
use crate::events::session_columns::with_sessions;
use crate::kernel::error::QueryError;
use crate::kernel::view::View;
use weir_base::clock::UnixMicros;

/// What stands before the text of an expression in the names of columns, which no column of events begins with.
const PREFIX: &str = "holds.";

/// The condition that the expression with this text is true of an event: true or false, where null is false.
pub(crate) fn condition(text: &str) -> Expr {
    coalesce(vec![ident(format!("{PREFIX}{text}")), lit(false)])
}

/// `events`, which lie within bounds, with what conditions, or other expressions that are to be computed of them, name
/// beside their columns.
///
/// # Errors
///
/// [`QueryError::Invalid`]: an expression of SQL is none of an event.
pub async fn with_columns<'e>(
    view: &View,
    events: DataFrame,
    bounds: (UnixMicros, UnixMicros),
    used: impl IntoIterator<Item = &'e Expr>,
) -> Result<DataFrame, QueryError> {
    let used: Vec<&Expr> = used.into_iter().collect();
    let mut names: Vec<String> = Vec::new();
    for Column { name, .. } in used.iter().flat_map(|expression| expression.column_refs()) {
        let is_there = events.schema().has_column_with_unqualified_name(name);
        if name.starts_with(PREFIX) && !is_there && !names.contains(name) {
            names.push(name.clone());
        }
    }
    let events = with_sessions(view, events, bounds, used).await?;
    if names.is_empty() {
        return Ok(events);
    }
    let parsed = |name: &String| {
        Expression::parse(name.strip_prefix(PREFIX).unwrap_or_default())
            .map(|own| (own, name.clone()))
    };
    let parsed = names.iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
    let values: Vec<_> =
        parsed.iter().map(|(own, name)| (own, Taken::Truth, name.as_str())).collect();
    Expression::add_all(view, events, &values).await
}
