//! The live files of the Delta tables that may have rows of a project, for readers without the server.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::error::OpenError;
use crate::tables::table_specs;
use weir_base::clock::Clock;
use weir_event::dictionary;
use weir_event::dictionary::{Column, Table};
use weir_event::id::ProjectId;
use weir_storage::delta::{DataFile, DeltaTable, TableSpec};
use weir_storage::tables::Tables;

/// The column of the project in all tables.
pub(crate) const PROJECT: &str = "project_id";

/// The files of one table.
#[derive(Clone, Debug, Default)]
pub struct LiveFiles {
    /// Version of the table; `None` if there is no table yet.
    pub version: Option<u64>,
    /// The directory or the prefix in a bucket that has them.
    pub place: String,
    /// The files, by path.
    pub files: Vec<LiveFile>,
    /// The columns of properties that the table has beside those of this program.
    pub more_columns: Vec<Column>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFile {
    /// Path, or address of the object.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Rows, of all projects.
    pub rows: u64,
}

/// The files of all tables that have some.
#[derive(Clone, Debug, Default)]
pub struct LiveTables {
    /// The tables, that of events first.
    pub tables: Vec<(&'static Table, LiveFiles)>,
}

impl LiveTables {
    /// The newest version of each table, read from its log.
    ///
    /// # Errors
    ///
    /// A table cannot be opened.
    pub async fn of(tables: &Tables, project: ProjectId, clock: &Clock) -> Result<Self, OpenError> {
        let mut live = Self::default();
        for spec in table_specs() {
            let Some(table) = dictionary::table(spec.name) else { continue };
            live.tables.push((table, files_of(table, spec, tables, (project, clock)).await?));
        }
        Ok(live)
    }

    /// The files of a table.
    pub fn of_table(&self, table: &Table) -> Option<&LiveFiles> {
        self.tables.iter().find(|(own, _)| own.name == table.name).map(|(_, files)| files)
    }
}

/// The columns of the files of a table, read from its log; those of its specification if there is no table yet.
///
/// # Errors
///
/// The table cannot be opened.
pub(crate) async fn columns(
    tables: &Tables,
    spec: TableSpec,
    clock: &Clock,
) -> Result<SchemaRef, OpenError> {
    let own = Arc::clone(&spec.schema);
    let table = opened(tables, spec, clock).await?;
    Ok(table.map_or(own, |table| Arc::clone(&table.current().schema)))
}

/// A table as it is at its place; `None` if there is none yet.
async fn opened(
    tables: &Tables,
    spec: TableSpec,
    clock: &Clock,
) -> Result<Option<DeltaTable>, OpenError> {
    let place = tables.name(spec.name);
    let files = tables.reading(spec.name).map_err(OpenError::io(Path::new(&place)))?;
    Ok(files.open_existing(spec, clock.clone()).await?)
}

async fn files_of(
    described: &Table,
    spec: TableSpec,
    tables: &Tables,
    (project, clock): (ProjectId, &Clock),
) -> Result<LiveFiles, OpenError> {
    let place = tables.name(spec.name);
    let Some(table) = opened(tables, spec, clock).await? else {
        return Ok(LiveFiles { place, ..LiveFiles::default() });
    };
    let version = table.current();
    let may_have = version.files.iter().filter(|file| file.stats.may_have(PROJECT, project.0));
    let file = |file: &Arc<DataFile>| LiveFile {
        path: format!("{place}/{}", file.path),
        bytes: file.size_bytes,
        rows: file.rows,
    };
    let files = may_have.map(file).collect();
    let more_columns = described.more_columns(version.schema.fields().iter().map(AsRef::as_ref));
    Ok(LiveFiles { version: Some(version.version), place, files, more_columns })
}
