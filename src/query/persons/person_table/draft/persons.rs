//! A file of the table `persons` that is to be: the columns of the table, and behind them a column for each property,
//! which the table does not name, so that one property is read without all else.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayBuilder, ArrayRef, StringDictionaryBuilder};
use arrow::datatypes::{Field, Int32Type, Schema};
use arrow::error::ArrowError;

use crate::persons::person_rows::{PROPERTY, PersonRows};
use weir_event::id::ProjectId;
use weir_identity::person::DistinctId;
use weir_identity::row::Row;

/// Properties with a column of their own. If persons of a file have more of them, those that come later are in the
/// JSON text alone.
pub(in crate::persons::person_table) const PROPERTIES_MAX: usize = 512;

/// See the head of this file.
pub(in crate::persons::person_table) struct Persons {
    rows: PersonRows,
    places: BTreeMap<Box<str>, usize>,
    /// Values as compact JSON.
    columns: Vec<(Box<str>, StringDictionaryBuilder<Int32Type>)>,
}

impl Persons {
    /// Nobody yet; with the columns of a table.
    pub(super) fn new(schema: &Schema) -> Self {
        Self {
            rows: PersonRows::new(schema.fields().iter().map(|field| field.name().as_str())),
            places: BTreeMap::new(),
            columns: Vec::new(),
        }
    }

    /// Adds a person behind all others.
    pub(super) fn push(
        &mut self,
        project: ProjectId,
        row: &Row<'_>,
        distinct_ids: &[DistinctId],
    ) -> Result<(), ArrowError> {
        let before = self.rows.len();
        self.rows.push(project, row, distinct_ids);
        // Rows mostly have the same properties in the same order.
        let mut guess = 0;
        for (name, value) in row.properties() {
            let is_guessed = self.columns.get(guess).is_some_and(|(own, _)| **own == *name);
            let place = if is_guessed { Some(guess) } else { self.place(name) };
            let Some((_, column)) = place.and_then(|place| self.columns.get_mut(place)) else {
                continue;
            };
            guess = place.map_or(guess, |place| place + 1);
            // Of a name that is there twice the last would count; rows have each once.
            if let Some(missing) = before.checked_sub(column.len()) {
                column.append_nulls(missing);
                column.append(value)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, name: &str) -> Option<usize> {
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        let place = self.columns.len();
        if place >= PROPERTIES_MAX {
            return None;
        }
        self.places.insert(name.into(), place);
        self.columns.push((name.into(), StringDictionaryBuilder::new()));
        Some(place)
    }

    /// Persons.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of their JSON texts.
    pub(super) fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// The columns behind those of the table, and the values of all.
    pub(super) fn finish(mut self) -> (Vec<Field>, Vec<ArrayRef>) {
        let persons = self.rows.len();
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut arrays = self.rows.finish();
        for (property, mut column) in self.columns {
            column.append_nulls(persons.saturating_sub(column.len()));
            let array: ArrayRef = Arc::new(column.finish());
            let name = format!("{PROPERTY}{property}");
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        (fields, arrays)
    }
}
