//! A file that is to be: [`Draft`].

mod distinct_ids;
mod persons;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use tokio::runtime::Handle;

use crate::persons::person_table::draft::distinct_ids::DistinctIds;
use crate::persons::person_table::draft::persons::Persons;
use crate::persons::person_table::schema::TableOf;
use weir_event::id::ProjectId;
use weir_identity::person::DistinctId;
use weir_identity::row::Row;
use weir_storage::delta::{DataFile, DeltaTable, TableSpec};
use weir_storage::derived::Derived;
use weir_storage::parquet::{Effort, FileWriter, Layout};
use weir_storage::store::StoreError;

pub(super) use crate::persons::person_table::draft::persons::PROPERTIES_MAX;

/// The rows of one file of a table.
pub(super) enum Draft {
    /// Of `persons`.
    Persons(Box<Persons>),
    /// Of `person_distinct_ids`.
    DistinctIds(Box<DistinctIds>),
}

impl Draft {
    /// Nobody yet; with the columns of a table.
    pub(super) fn new(kind: TableOf, schema: &Schema) -> Self {
        match kind {
            TableOf::Persons => Self::Persons(Box::new(Persons::new(schema))),
            TableOf::DistinctIds => Self::DistinctIds(Box::default()),
        }
    }

    /// Adds a person behind all others.
    pub(super) fn push(
        &mut self,
        project: ProjectId,
        row: &Row<'_>,
        ids: &[DistinctId],
    ) -> Result<(), ArrowError> {
        match self {
            Self::Persons(draft) => draft.push(project, row, ids),
            Self::DistinctIds(draft) => {
                draft.push(project, row, ids);
                Ok(())
            }
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Persons(draft) => draft.len(),
            Self::DistinctIds(draft) => draft.len(),
        }
    }

    /// Bytes of their texts.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Persons(draft) => draft.bytes(),
            Self::DistinctIds(draft) => draft.bytes(),
        }
    }

    /// Writes the file with these columns beside those of the table, durably, and in no table yet.
    pub(super) fn write(
        self,
        (table, derived): (&DeltaTable, Derived),
        layout: &Layout,
        name: &str,
        runtime: &Handle,
    ) -> Result<DataFile, StoreError> {
        let rows = self.len();
        let (more, arrays): (Vec<Field>, Vec<ArrayRef>) = match self {
            Self::Persons(draft) => draft.finish(),
            Self::DistinctIds(draft) => (Vec::new(), draft.finish()),
        };
        let own = table.spec().schema.fields().iter().map(|field| field.as_ref().clone());
        let schema = Arc::new(Schema::new(own.chain(more).collect::<Vec<Field>>()));
        let spec = TableSpec { schema, ..table.spec().clone() };
        let (store, columns) = (table.store(), (&spec, derived));
        let mut writer = FileWriter::deriving(&store, columns, layout, Effort::Merge, None, name)?;
        // One row group: all rows of a file are read at once.
        let column = |at: usize| arrays.get(at).map(|array| Ok(Arc::clone(array))).into_iter();
        runtime.block_on(writer.write_group(rows, column))?;
        Ok(runtime.block_on(writer.finish())?)
    }
}
