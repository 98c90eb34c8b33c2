//! Columns that conditions of events need besides those of the table: properties of their sessions, and SQL
//! expressions. A condition refers to a column by name, and the plan adds it when it has the events: [`with_columns`].

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

/// Prefix of the names of such expression columns, followed by the expression's text; no column of events begins with
/// it.
const PREFIX: &str = "holds.";

/// The condition that the expression with this text is true for an event; null counts as false.
pub(crate) fn condition(text: &str) -> Expr {
    coalesce(vec![ident(format!("{PREFIX}{text}")), lit(false)])
}

/// `events`, which lie within the time bounds, with the additional columns to which the conditions and other
/// expressions in `used` refer.
///
/// # Errors
///
/// [`QueryError::Invalid`]: an SQL expression is not valid for events.
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
