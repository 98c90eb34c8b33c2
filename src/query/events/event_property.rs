//! A property of events as an expression of a plan: its promoted column if there is one, else a read of the JSON text.

use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, ident, lit};

use crate::functions::text_number::number;
use weir_event::schema::{PROMOTED, PropertyType, promoted_column_name};
use weir_storage::exact::ExactColumns;

/// The property of which the column has a shorter name.
const SESSION: &str = "$session_id";

/// A property of an event as text, read from its column if it has a text column. Values other than texts are compact
/// JSON.
pub fn event_text(key: &str) -> Expr {
    match promoted(key) {
        Some(PropertyType::Text) => ident(promoted_column_name(key)),
        _ if key == SESSION => ident("session_id"),
        _ => json_text(key),
    }
}

/// A property of an event as text, whatever its type: where its column does not contain all values, missing ones are
/// read from the JSON text.
pub fn whole_text(key: &str, exact: ExactColumns) -> Expr {
    match is_exact(key, exact) {
        true => event_text(key),
        false => coalesce(vec![event_text(key), json_text(key)]),
    }
}

/// A property of an event as a number, parsed if it is a text; null if it is neither. The column of a property contains
/// JSON numbers only, so where it is null texts are read from the JSON, unless the column is one of the `exact` ones.
pub fn event_number(key: &str, exact: ExactColumns) -> Expr {
    match promoted(key) {
        Some(PropertyType::Double) if is_exact(key, exact) => ident(promoted_column_name(key)),
        Some(PropertyType::Double) => {
            coalesce(vec![ident(promoted_column_name(key)), number(json_text(key))])
        }
        _ => number(whole_text(key, exact)),
    }
}

/// Whether the column of a property contains all of its values.
fn is_exact(key: &str, exact: ExactColumns) -> bool {
    match PROMOTED.iter().position(|(own, _)| *own == key) {
        Some(number) => exact.has(number),
        // Without a column, the JSON text contains all.
        None => true,
    }
}

fn promoted(key: &str) -> Option<PropertyType> {
    PROMOTED.iter().find(|(own, _)| *own == key).map(|(_, kind)| *kind)
}

/// A property in the column `properties`, of events, persons or groups, as text. Values other than texts are compact
/// JSON.
pub fn json_text(key: &str) -> Expr {
    datafusion_functions_json::functions::json_as_text(col("properties"), lit(key))
}
