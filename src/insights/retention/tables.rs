//! Counts of all cells by breakdown value: [`Tables`]. If there are many values, only the size of each is kept, and a
//! second scan counts the cells of the largest.

use std::collections::HashMap;

use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};

use weir_query::kernel::error::QueryError;

/// Most counts that are kept for all values together.
const COUNTS_MAX: usize = 4 << 20;

/// Most distinct breakdown values.
const VALUES_MAX: usize = 1 << 20;

/// Memory of a value besides its text, in bytes.
const VALUE_BYTES: usize = 128;

/// The counts of one breakdown value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Table {
    /// The number of actors in the first cells of all rows together.
    pub(super) size: u64,
    /// The number of actors of each cell, row by row; empty if only sizes are kept.
    pub(super) counts: Vec<u64>,
    /// The sum of each cell; empty if no property is aggregated.
    pub(super) sums: Vec<f64>,
}

impl Table {
    /// A table of this many cells without actors.
    fn empty(cells: usize, has_sums: bool) -> Self {
        let sums = if has_sums { cells } else { 0 };
        Self { size: 0, counts: vec![0; cells], sums: vec![0.0; sums] }
    }

    /// Adds to the sum of a cell, given its index in the table.
    pub(super) fn add(&mut self, cell: usize, number: f64) {
        if let Some(sum) = self.sums.get_mut(cell) {
            *sum += number;
        }
    }

    /// Counts an actor in a cell, given its index in the table.
    pub(super) fn count(&mut self, cell: usize) {
        if let Some(count) = self.counts.get_mut(cell) {
            *count += 1;
        }
    }

    /// Counts an actor of a row in `size`.
    pub(super) fn enlarge(&mut self) {
        self.size += 1;
    }

    fn extend(&mut self, other: &Self) {
        self.size += other.size;
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        for (own, more) in self.sums.iter_mut().zip(&other.sums) {
            *own += more;
        }
    }
}

/// The tables of all breakdown values.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tables {
    by_value: HashMap<String, Table>,
    /// The table of all other values, if no further values are added.
    rest: Option<Table>,
    /// The number of cells of a table.
    cells: usize,
    /// Whether cells have sums.
    has_sums: bool,
    /// Whether cells are counted, or only sizes are kept.
    has_counts: bool,
    /// Accounts for their memory, once they are in a process.
    #[serde(skip)]
    reservation: Option<MemoryReservation>,
}

impl Tables {
    /// Tables to which values are added as they occur.
    pub(super) fn new(cells: usize, has_sums: bool, reservation: MemoryReservation) -> Self {
        let (by_value, rest) = (HashMap::new(), None);
        let reservation = Some(reservation);
        Self { by_value, rest, cells, has_sums, has_counts: true, reservation }
    }

    /// Accounts for the memory of what is added.
    pub(super) fn account(&mut self, memory: MemoryReservation) {
        self.reservation = Some(memory);
    }

    /// Adds the counts of other actors.
    ///
    /// # Errors
    ///
    /// There are too many values.
    pub(super) fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        if self.has_counts && !other.has_counts {
            self.drop_counts()?;
        }
        for (value, table) in other.by_value {
            self.of_value(&value)?.extend(&table);
        }
        if let (Some(own), Some(other)) = (&mut self.rest, &other.rest) {
            own.extend(other);
        }
        Ok(())
    }

    /// Keeps only the sizes from now on.
    fn drop_counts(&mut self) -> Result<(), QueryError> {
        self.has_counts = false;
        let cells = |table: &mut Table| (table.counts, table.sums) = (Vec::new(), Vec::new());
        self.by_value.values_mut().for_each(cells);
        let texts: usize = self.by_value.keys().map(String::len).sum();
        let bytes = texts.saturating_add(self.by_value.len() * VALUE_BYTES);
        self.reservation.as_ref().map_or(Ok(()), |own| own.try_resize(bytes))?;
        Ok(())
    }

    /// Tables for these values, and one for all others together.
    fn of<'v>(&self, values: impl Iterator<Item = &'v str>) -> Self {
        let empty = self.empty(self.cells);
        Self {
            by_value: values.map(|value| (value.to_owned(), empty.clone())).collect(),
            rest: Some(empty),
            cells: self.cells,
            has_sums: self.has_sums,
            has_counts: true,
            reservation: self.reservation.as_ref().map(MemoryReservation::new_empty),
        }
    }

    fn empty(&self, cells: usize) -> Table {
        Table::empty(cells, self.has_sums)
    }

    /// The table of a value.
    ///
    /// # Errors
    ///
    /// There are too many values.
    pub(super) fn of_value(&mut self, value: &str) -> Result<&mut Table, QueryError> {
        if self.rest.is_none() && !self.by_value.contains_key(value) {
            self.add(value)?;
        }
        let own = self.by_value.get_mut(value).or(self.rest.as_mut());
        own.ok_or(QueryError::Unavailable("a value of the breakdown has no counts"))
    }

    fn add(&mut self, value: &str) -> Result<(), QueryError> {
        let values = self.by_value.len();
        if values >= VALUES_MAX {
            let detail = format!("The breakdown has more than {VALUES_MAX} values.");
            return Err(QueryError::Invalid(detail));
        }
        if self.has_counts && values.saturating_mul(self.cells) > COUNTS_MAX {
            self.drop_counts()?;
        }
        let cells = if self.has_counts { self.cells } else { 0 };
        // A count, and a sum if a property is aggregated.
        let of_cell = size_of::<u64>() * (1 + usize::from(self.has_sums));
        let bytes = value.len() + VALUE_BYTES + cells * of_cell;
        self.reservation.as_ref().map_or(Ok(()), |own| own.try_grow(bytes))?;
        let table = self.empty(cells);
        self.by_value.insert(value.to_owned(), table);
        Ok(())
    }

    /// The `limit` values with the largest sizes, ties by their texts, and the number of other values.
    pub(super) fn largest(&self, limit: usize) -> (Vec<&str>, usize) {
        let mut values: Vec<(&str, u64)> =
            self.by_value.iter().map(|(value, table)| (value.as_str(), table.size)).collect();
        values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let others = values.len().saturating_sub(limit);
        (values.into_iter().take(limit).map(|(value, _)| value).collect(), others)
    }

    /// Tables in which the cells of the `limit` largest values, and of all others together, are to be counted by
    /// another scan; `None` if all cells are counted.
    pub(super) fn uncounted(&self, limit: usize) -> Option<Self> {
        (!self.has_counts).then(|| self.of(self.largest(limit).0.into_iter()))
    }

    /// The tables of these values in order, and that of all others together.
    pub(super) fn into_tables(mut self, values: &[String]) -> (Vec<(String, Table)>, Table) {
        let empty = self.empty(self.cells);
        let own = values.iter().map(|value| {
            let table = self.by_value.remove(value);
            (value.clone(), table.unwrap_or_else(|| empty.clone()))
        });
        let own: Vec<_> = own.collect();
        let mut rest = self.rest.unwrap_or(empty);
        self.by_value.values().for_each(|table| rest.extend(table));
        (own, rest)
    }
}
