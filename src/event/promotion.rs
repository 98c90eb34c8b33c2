//! Properties of events that owners of projects promote to columns of the table: [`Promotion`]. Unlike those of
//! [`crate::schema::PROMOTED`], their columns are computed from the JSON of the events when a file is written; files from
//! before the promotion lack them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use crate::schema::{PROMOTED, PropertyType, promoted_column_name};

/// Most properties that the projects of a server promote: each is a column of the events of all, and is looked for in
/// each event that is written.
pub const PROMOTIONS_MAX: usize = 50;

/// Most columns of the events table, with those of promotions that have ended.
pub const COLUMNS_MAX: usize = 300;

/// Most characters of the key of a property that is promoted.
pub const KEY_MAX_CHARS: usize = 200;

/// A property with a column, which contains what SQL reads in the property: a text is its value, of lists and objects their
/// JSON; a number is a JSON number, or that of a text; a truth value is `true` or `false`, also as a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Promotion {
    /// The key of the property.
    pub key: Arc<str>,
    /// The type of the column, for good.
    pub kind: PropertyType,
}

impl Promotion {
    /// The name of the column.
    pub fn column(&self) -> String {
        promoted_column_name(&self.key)
    }

    /// The column.
    pub fn field(&self) -> Field {
        let data_type = match self.kind {
            // That of values that are read from JSON.
            PropertyType::Text => DataType::Utf8,
            PropertyType::Double => DataType::Float64,
            PropertyType::Boolean => DataType::Boolean,
        };
        Field::new(self.column(), data_type, true)
    }

    /// Whether the events of every server have a column for this key.
    pub fn is_fixed(key: &str) -> bool {
        PROMOTED.iter().any(|(own, _)| *own == key)
    }
}

/// The columns of several projects: each key once, in the order of the keys. Of two types of a key the first stays.
pub fn merged<'p>(all: impl IntoIterator<Item = &'p Promotion>) -> Vec<Promotion> {
    let mut columns: BTreeMap<&str, &Promotion> = BTreeMap::new();
    for own in all {
        columns.entry(&own.key).or_insert(own);
    }
    columns.into_values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::{Promotion, merged};
    use crate::schema::PropertyType;

    #[test]
    fn columns_of_several_projects_are_one_each() {
        let of = |key: &str, kind| Promotion { key: key.into(), kind };
        let all = [
            of("plan", PropertyType::Text),
            of("age", PropertyType::Double),
            of("plan", PropertyType::Boolean),
        ];
        let expected = [of("age", PropertyType::Double), of("plan", PropertyType::Text)];
        assert_eq!(merged(&all), expected);
        assert_eq!(of("a b", PropertyType::Text).column(), "p_a%20b");
        assert_eq!((Promotion::is_fixed("$os"), Promotion::is_fixed("plan")), (true, false));
    }
}
