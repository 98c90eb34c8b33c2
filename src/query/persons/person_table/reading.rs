//! How queries read the table `persons`: its parts as of a view, and columns and rows of its files.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use object_store::ObjectStore;
use parquet::errors::ParquetError;

use crate::persons::person_rows::Selecting;
use crate::persons::person_table::file::{FileBatch, FileRows, ScanColumns};
use crate::persons::person_table::pieces::Parts;
use crate::persons::person_table::{PersonTable, file};
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::view::View;
use weir_storage::delta::DataFile;

/// Rows of a batch of a scan.
const SCAN_ROWS: usize = 2048;

impl PersonTable {
    /// All persons of a project as of a view, in the files of a table, if there is one, and who has changed since. Those
    /// who are in no file are cut into `cuts` parts at most.
    pub(crate) fn parts(
        table: Option<&Self>,
        project: ProjectId,
        view: &View,
        cuts: usize,
    ) -> Result<Parts, IdentityError> {
        Parts::of(table.map(|table| &table.pieces), project, view, cuts)
    }

    /// Columns of a project's persons, as a file has them, for a scan with a number ([`PersonTable::begin`]); `None` if it
    /// cannot be read, and is written anew because of that. Blocks; not for the threads of a runtime.
    pub(crate) fn columns(
        &self,
        scan: u64,
        store: &Arc<dyn ObjectStore>,
        file: &Arc<DataFile>,
        project: ProjectId,
        wanted: &[Selecting],
    ) -> Option<Vec<ArrayRef>> {
        let name = |column: &Selecting| (file.path.clone(), project, column.name());
        let held = |column: &Selecting| self.columns.get(scan, &name(column));
        let mut found: Vec<Option<ArrayRef>> = wanted.iter().map(held).collect();
        let missing = wanted.iter().zip(&found).filter(|(_, found)| found.is_none());
        let missing: Vec<Selecting> = missing.map(|(column, _)| column.clone()).collect();
        if !missing.is_empty() {
            let read = file::columns(Arc::clone(store), file, project, &missing);
            let read = self.runtime.block_on(read);
            let read = read.inspect_err(|error| self.distrust(file, error)).ok()?;
            let places = found.iter_mut().filter(|found| found.is_none());
            for ((place, column), wanted) in places.zip(read).zip(&missing) {
                self.columns.put(scan, file, name(wanted), &column);
                *place = Some(column);
            }
        }
        found.into_iter().collect()
    }

    /// The number of a scan that begins.
    pub(crate) fn begin(&self) -> u64 {
        self.columns.begin()
    }

    /// Memory of columns that are kept for scans, in bytes.
    pub(crate) fn columns_memory(&self) -> usize {
        self.columns.memory()
    }

    /// Begins to read rows of a part, see [`file::scan`]; the rows of the store are read if its file cannot be. Blocks;
    /// not for the threads of a runtime.
    pub(crate) fn scan(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: &DataFile,
        project: ProjectId,
        numbers: Range<i64>,
        columns: ScanColumns<'_>,
    ) -> Option<(FileRows, Option<FileBatch>)> {
        let begin = async {
            let store = Arc::clone(store);
            let mut rows = file::scan(store, file, project, numbers, columns, SCAN_ROWS).await?;
            // A damaged file is found with its first rows: it has one row group.
            let first = rows.next().await?;
            Ok::<_, ParquetError>((rows, first))
        };
        self.runtime.block_on(begin).inspect_err(|error| self.distrust(file, error)).ok()
    }

    /// The next rows, as [`PersonTable::scan`].
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(crate) fn next(&self, rows: &mut FileRows) -> Result<Option<FileBatch>, ParquetError> {
        self.runtime.block_on(rows.next())
    }
}
