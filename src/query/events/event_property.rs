//! A property of events as a column of a plan: read from its own column if it has one, else from the JSON text.

use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, ident, lit};

use crate::functions::text_number::number;
use weir_event::schema::{PROMOTED, PropertyType, promoted_column_name};
use weir_storage::exact::ExactColumns;

/// The property whose column has a shorter name.
const SESSION: &str = "$session_id";

/// A property of an event as text, read from its column if it has one, which has texts only. What is no text is
/// compact JSON.
pub fn event_text(key: &str) -> Expr {
    match promoted(key) {
        Some(PropertyType::Text) => ident(promoted_column_name(key)),
        _ if key == SESSION => ident("session_id"),
        _ => json_text(key),
    }
}

/// A property of an event as text, whatever its type: where its column does not have all values, those that it lacks are
/// read from the JSON text.
pub fn whole_text(key: &str, exact: ExactColumns) -> Expr {
    match is_exact(key, exact) {
        true => event_text(key),
        false => coalesce(vec![event_text(key), json_text(key)]),
    }
}

/// A property of an event as a number, or the number that a text is; null where it is neither. The column of
/// a property has JSON numbers only, so texts are looked up where it has none and is not one of those that are `exact`.
pub fn event_number(key: &str, exact: ExactColumns) -> Expr {
    match promoted(key) {
        Some(PropertyType::Double) if is_exact(key, exact) => ident(promoted_column_name(key)),
        Some(PropertyType::Double) => {
            coalesce(vec![ident(promoted_column_name(key)), number(json_text(key))])
        }
        _ => number(whole_text(key, exact)),
    }
}

/// Whether the values of a property are all in its column.
fn is_exact(key: &str, exact: ExactColumns) -> bool {
    match PROMOTED.iter().position(|(own, _)| *own == key) {
        Some(number) => exact.has(number),
        // The JSON text is where it is.
        None => true,
    }
}

fn promoted(key: &str) -> Option<PropertyType> {
    PROMOTED.iter().find(|(own, _)| *own == key).map(|(_, kind)| *kind)
}

/// A property in the column `properties`, of events, persons or groups, as text. What is no text is compact JSON.
pub fn json_text(key: &str) -> Expr {
    datafusion_functions_json::functions::json_as_text(col("properties"), lit(key))
}
