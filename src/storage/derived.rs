//! Columns of files that are functions of another column of the row: [`Derived`]. They are computed when a file is
//! written, and in memory they do not exist.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;

/// Computes the values of a column from those of another one, row by row.
pub type Derivation = Arc<dyn Fn(&ArrayRef) -> Result<ArrayRef, ArrowError> + Send + Sync>;

/// A column that is computed.
#[derive(Clone)]
pub struct DerivedColumn {
    /// Its name and type; it may be null.
    pub field: FieldRef,
    /// Its values. There is one for every row, whatever the row has.
    pub values: Derivation,
}

impl fmt::Debug for DerivedColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedColumn").field("field", &self.field).finish_non_exhaustive()
    }
}

/// The columns that are computed, which follow all others in files.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    /// Position of the column from which they are computed.
    pub source: usize,
    /// The columns.
    pub columns: Arc<[DerivedColumn]>,
}

impl Derived {
    /// The columns of files: those of the table's rows, then these.
    pub(crate) fn after(&self, schema: &SchemaRef) -> SchemaRef {
        if self.columns.is_empty() {
            return Arc::clone(schema);
        }
        let fields: Vec<_> = schema.fields().iter().cloned().chain(self.fields()).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }

    /// The values of the columns for a batch with the columns of the table.
    pub(crate) fn of<'b>(
        &'b self,
        batch: &'b RecordBatch,
    ) -> impl Iterator<Item = Result<ArrayRef, ArrowError>> + 'b {
        let source = batch.columns().get(self.source);
        let missing = || ArrowError::SchemaError("the rows lack a column".to_owned());
        self.columns.iter().map(move |own| (own.values)(source.ok_or_else(missing)?))
    }

    /// Their names and types.
    pub fn fields(&self) -> Vec<FieldRef> {
        self.columns.iter().map(|own| Arc::clone(&own.field)).collect()
    }
}
