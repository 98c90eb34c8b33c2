//! Encodes property values as texts of rows: [`Wanted`] selects properties, [`Exact`] filters by such values. A
//! string is its own text; other values are compact JSON. Null is no value.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListBuilder, StringViewBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::prelude::ident;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use weir_event::json;
use weir_query::filter::condition::{Pace, of_column};
use weir_query::functions::serializable;
use weir_query::functions::serializable::SerializableFunction;

/// Longest key, and longest value. Longer properties have no row, since such values are practically unique.
const TEXT_MAX_BYTES: usize = 1024;

/// Separates the key from the value in a text. Properties with this character in the key have no row.
const SEPARATOR: char = '\u{1f}';

/// The column with the properties.
const PROPERTIES: &str = "properties";

type Properties = Map<String, Value>;

/// Selects properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// All properties except these.
    AllBut(HashSet<String>),
    /// These properties; an absent one has the empty text as its value.
    Named(Vec<String>),
}

impl Wanted {
    /// All properties except `excluded`.
    pub(super) fn all_but(excluded: Vec<String>) -> Self {
        Self::AllBut(excluded.into_iter().collect())
    }

    /// The properties `names` except `excluded`.
    pub(super) fn named(mut names: Vec<String>, excluded: &[String]) -> Self {
        names.retain(|name| !excluded.contains(name));
        Self::Named(names)
    }

    /// Calls `show` with the selected properties and their values.
    fn each(&self, properties: &Properties, mut show: impl FnMut(&str, &str)) {
        let mut show = |key: &str, value: &str| {
            let is_short = key.len() <= TEXT_MAX_BYTES && value.len() <= TEXT_MAX_BYTES;
            if is_short && !key.contains(SEPARATOR) {
                show(key, value);
            }
        };
        match self {
            Self::AllBut(excluded) => {
                for (key, value) in properties.iter().filter(|(key, _)| !excluded.contains(*key)) {
                    if let Some(value) = text(value) {
                        show(key, &value);
                    }
                }
            }
            Self::Named(names) => {
                for key in names {
                    show(key, &properties.get(key).and_then(text).unwrap_or_default());
                }
            }
        }
    }

    /// Whether an absent property counts as an empty text.
    pub(super) fn has_absent(&self) -> bool {
        matches!(self, Self::Named(_))
    }

    /// Expression for the list of the selected properties of a row, each encoded as a text that [`parts`] decodes.
    pub(super) fn list(self) -> Expr {
        serializable::call(self, ident(PROPERTIES))
    }
}

impl SerializableFunction for Wanted {
    const NAME: &'static str = "values_of_properties";

    fn takes() -> DataType {
        DataType::Utf8View
    }

    fn gives() -> DataType {
        DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true)))
    }

    fn invoke(&self, rows: &ArrayRef) -> Result<ArrayRef> {
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        let mut joined = String::new();
        each_row(rows, |properties| {
            self.each(&properties, |key, value| {
                joined.clear();
                joined.push_str(key);
                joined.push(SEPARATOR);
                joined.push_str(value);
                lists.values().append_value(&joined);
            });
            lists.append(true);
        })?;
        Ok(Arc::new(lists.finish()))
    }
}

/// Decodes a text of [`Wanted::list`] to the key and the value.
pub(super) fn parts(text: &str) -> (&str, &str) {
    text.split_once(SEPARATOR).unwrap_or((text, ""))
}

/// Property filters that compare texts exactly; filters of other insights are case-insensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exact {
    /// Keys with the values of which the property must have one.
    values: Vec<(String, Vec<String>)>,
    /// Whether an absent property counts as an empty text.
    pub(super) has_absent: bool,
}

impl Exact {
    /// Removes the exact filters on properties of type `kind` from a list and returns them; filters without a type
    /// belong to it if `is_default`.
    pub(super) fn taken_from(filters: &mut Vec<Value>, kind: &str, is_default: bool) -> Self {
        let mut values = Vec::new();
        filters.retain(|filter| match read(filter, kind, is_default) {
            Some(own) => {
                values.push(own);
                false
            }
            None => true,
        });
        Self { values, has_absent: false }
    }

    /// Whether there are no filters.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn hold(&self, properties: &Properties) -> bool {
        self.values.iter().all(|(key, values)| {
            let value = properties.get(key).and_then(text);
            match value {
                Some(value) => values.iter().any(|own| *own == value),
                None => self.has_absent && values.iter().any(String::is_empty),
            }
        })
    }

    /// The condition that all hold for the properties of a row; `None` without filters.
    pub(super) fn condition(self) -> Option<Expr> {
        if self.is_empty() {
            return None;
        }
        let (name, data_type) = ("has_values", DataType::Utf8View);
        Some(of_column(name, PROPERTIES, data_type, Pace::Steady, move |column, _| {
            let mut holds = Vec::new();
            each_row(column, |properties| holds.push(self.hold(&properties)))?;
            Ok(BooleanArray::from(holds))
        }))
    }
}

/// The key and the values of an exact filter on properties of type `kind`; `None` for other filters.
fn read(filter: &Value, kind: &str, is_default: bool) -> Option<(String, Vec<String>)> {
    let is = |name: &str, expected: &str, otherwise: bool| match filter.get(name) {
        None | Some(Value::Null) => otherwise,
        other => other.and_then(Value::as_str) == Some(expected),
    };
    if !is("operator", "exact", true) || !is("type", kind, is_default) {
        return None;
    }
    let key = filter.get("key")?.as_str()?.to_owned();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let values = match filter.get("value")? {
        Value::Array(values) if !values.is_empty() => values.iter().map(text).collect(),
        one => text(one).map(|one| vec![one]),
    };
    Some((key, values?))
}

/// The text of a value; `None` for null.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(Cow::Borrowed(text)),
        other => Some(Cow::Owned(other.to_string())),
    }
}

/// Calls `show` with the properties of each row.
fn each_row(rows: &ArrayRef, mut show: impl FnMut(Properties)) -> Result<()> {
    let Some(column) = rows.as_string_view_opt() else {
        return Err(DataFusionError::Internal("properties have another type".to_owned()));
    };
    for at in 0..column.len() {
        let text = if column.is_valid(at) { column.value(at) } else { "" };
        // Stored properties are an object; damaged ones count as empty.
        show(json::restore(text.as_bytes()).unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Exact, TEXT_MAX_BYTES, Wanted, parts};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn values_are_texts_or_compact_json() {
        let long = "x".repeat(TEXT_MAX_BYTES + 1);
        let properties = json!({
            "a": "A", "b": 1.50, "c": true, "d": null, "e": "", "f": {"x": [1, "y"]}, "g": long,
            "h\u{1f}": "i", "out": 1,
        });
        let shown = |wanted: &Wanted| {
            let mut shown = Vec::new();
            wanted.each(properties.as_object().unwrap(), |key, value| {
                shown.push(format!("{key}={value}"));
            });
            shown.sort();
            shown
        };
        let all = Wanted::all_but(names(&["out"]));
        assert_eq!(shown(&all), ["a=A", "b=1.5", "c=true", "e=", r#"f={"x":[1,"y"]}"#]);
        let named = Wanted::named(names(&["a", "d", "g", "out", "z"]), &names(&["out"]));
        assert_eq!(shown(&named), ["a=A", "d=", "z="]);
        assert_eq!((all.has_absent(), named.has_absent()), (false, true));
        assert_eq!(parts("a\u{1f}b\u{1f}c"), ("a", "b\u{1f}c"));
    }

    #[test]
    fn filters_for_texts_ask_for_just_these() {
        let text = json!({"key": "a", "value": ["A"], "operator": "exact", "type": "event"});
        let others = [
            json!({"key": "a", "value": "A", "operator": "icontains"}),
            json!({"key": "a", "value": "A", "type": "person"}),
            json!({"key": "a", "value": 1}),
            json!({"key": "a", "value": []}),
            json!({"type": "OR", "values": []}),
        ];
        let mut filters: Vec<Value> = others.to_vec();
        filters.insert(0, text);
        filters.push(json!({"key": "b", "value": ""}));
        let mut exact = Exact::taken_from(&mut filters, "event", true);
        assert_eq!(filters, others);
        for (properties, has_absent, expected) in [
            (json!({"a": "A", "b": ""}), false, true),
            (json!({"a": "a", "b": ""}), false, false),
            (json!({"a": "A"}), false, false),
            (json!({"a": "A"}), true, true),
            (json!({"b": ""}), true, false),
        ] {
            exact.has_absent = has_absent;
            assert_eq!(exact.hold(properties.as_object().unwrap()), expected, "{properties}");
        }
        let mut untyped = vec![json!({"key": "b", "value": ""})];
        assert!(Exact::taken_from(&mut untyped, "person", false).is_empty());
    }
}
