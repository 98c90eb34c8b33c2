//! Properties of events and of persons that owners of projects promote to columns of a table ([`PromotedTable`]):
//! [`Promotion`]. Unlike those of [`crate::schema::PROMOTED`], their columns are computed from the JSON of the rows when a
//! file is written; files from before the promotion lack them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use crate::dictionary::{EVENTS, PERSONS, Table};
use crate::schema::{PROMOTED, PropertyType, promoted_column_name};

/// Most properties of a table that the projects of a server promote: each is a column of the rows of all, and is looked
/// for in each row that is written.
pub const PROMOTIONS_MAX: usize = 50;

/// Most columns of a table, with those of promotions that have ended.
pub const COLUMNS_MAX: usize = 300;

/// Most characters of the key of a property that is promoted.
pub const KEY_MAX_CHARS: usize = 200;

/// A table to which properties are promoted: those of its own rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromotedTable {
    /// `events`.
    #[default]
    Events,
    /// `persons`.
    Persons,
}

impl PromotedTable {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Events, Self::Persons];

    /// The names of all.
    pub const NAMES: [&'static str; 2] = [EVENTS.name, PERSONS.name];

    /// The table in the data dictionary.
    pub fn described(self) -> &'static Table {
        match self {
            Self::Events => &EVENTS,
            Self::Persons => &PERSONS,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.described().name
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// The properties with a column in the table of every server.
    pub fn fixed(self) -> &'static [(&'static str, PropertyType)] {
        match self {
            Self::Events => &PROMOTED,
            Self::Persons => &[],
        }
    }

    /// Whether the table of every server has a column for this key.
    pub fn is_fixed(self, key: &str) -> bool {
        self.fixed().iter().any(|(own, _)| *own == key)
    }
}

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
    use super::{PromotedTable, Promotion, merged};
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
    }

    #[test]
    fn tables_have_names_and_fixed_columns() {
        use PromotedTable::{Events, Persons};

        assert_eq!(PromotedTable::ALL.map(PromotedTable::name), PromotedTable::NAMES);
        assert_eq!(PromotedTable::named("persons"), Some(Persons));
        assert_eq!(PromotedTable::named("groups"), None);
        assert_eq!(PromotedTable::default(), Events);
        let fixed = [(Events, "$os"), (Events, "plan"), (Persons, "$os")];
        assert_eq!(fixed.map(|(table, key)| table.is_fixed(key)), [true, false, false]);
    }
}
