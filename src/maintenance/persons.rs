//! The `persons` Delta table: an export of the identity store for other engines. Weir itself never reads it.
//!
//! A copy is one snapshot of the store, committed as a replacement of all files of the previous copy. The
//! commit contains the log sequence of the snapshot, so an unchanged store is not copied again, also after a
//! restart.
//!
//! All functions block; they run on a dedicated thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::BooleanBuilder;
use arrow::array::Int64Builder;
use arrow::array::RecordBatch;
use arrow::array::StringViewBuilder;
use arrow::array::TimestampMicrosecondBuilder;
use arrow::datatypes::DataType;
use arrow::datatypes::Field;
use arrow::datatypes::Schema;
use arrow::datatypes::SchemaRef;
use arrow::datatypes::TimeUnit;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::clock::Clock;
use crate::error::Kind;
use crate::identity::IdentityError;
use crate::identity::person::Person;
use crate::identity::store::Identities;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::metadata::Metadata;
use crate::storage::delta::DataFile;
use crate::storage::delta::DeltaTable;
use crate::storage::delta::Edit;
use crate::storage::delta::EditKind;
use crate::storage::delta::TableSpec;
use crate::storage::delta::error::TableError;
use crate::storage::parquet::Effort;
use crate::storage::parquet::FileWriter;
use crate::storage::parquet::Layout;
use crate::storage::store::StoreError;
use crate::storage::tables::Tables;
use crate::tasks::Shutdown;

/// The columns, as published in `schemas/arrow/persons.v1.json`: existing columns stay, and a new column is
/// added at the end and nullable. `distinct_ids` is a JSON array and `properties` a JSON object, both as
/// text, which every Parquet reader supports.
pub fn persons_schema() -> SchemaRef {
    let field = |name, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("project_id", DataType::Int64),
        field("id", DataType::Int64),
        field("uuid", DataType::Utf8View),
        field("distinct_ids", DataType::Utf8View),
        field("properties", DataType::Utf8View),
        field("created_at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("is_identified", DataType::Boolean),
        field("version", DataType::Int64),
    ]))
}

/// The specification of the persons table.
pub fn spec() -> TableSpec {
    TableSpec { name: "persons", schema: persons_schema(), partition_column: None }
}

/// The layout of the files, by positions in [`persons_schema`]. Rows are sorted by project id, and within a
/// project by person number.
fn layout() -> Layout {
    Layout {
        sort: vec![0, 1],
        bloom: Vec::new(),
        statistics: vec![0, 1, 5],
        unique: vec![2, 3],
        wide: vec![4],
    }
}

/// Size limits of batches, row groups and files. A batch may exceed its bytes by one person, row groups and
/// files by one batch.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    batch_rows: usize,
    batch_bytes: usize,
    /// Memory of the Parquet writer.
    group_bytes: u64,
    file_bytes: u64,
}

/// The limits of a server. A copy takes less than 100 MiB of memory with them, for any persons.
const CUTS: Cuts =
    Cuts { batch_rows: 2048, batch_bytes: 8 << 20, group_bytes: 32 << 20, file_bytes: 256 << 20 };

/// Minimum pause between copies, as a multiple of the duration of the previous copy. A copy contains all
/// persons, however few have changed, and takes minutes for ten million persons: with this pause it takes at
/// most a tenth of one core.
const PAUSE_FACTOR: u32 = 9;

/// The pause until the next copy, after a copy that took `took`.
pub fn pause_after(took: Duration, interval: Duration) -> Duration {
    interval.max(took.saturating_mul(PAUSE_FACTOR))
}

/// Error of a copy. The table is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum PersonsError {
    /// The directory of the table.
    #[error("cannot use {}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Reading the persons failed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The identity store has lost persons that the table has.
    #[error(
        "the identity store lost the persons of records before the start of the log; the persons \
         table keeps its previous version. Restore the directory identity, or remove tables/persons to go \
         on without them"
    )]
    Incomplete,
    /// Writing or committing the files failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TableError> for PersonsError {
    fn from(error: TableError) -> Self {
        Self::Store(error.into())
    }
}

impl PersonsError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { .. } | Self::Incomplete => Kind::Unavailable,
            Self::Identity(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}

/// Size and position of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Log sequence of the snapshot.
    pub through: u64,
    /// Number of persons.
    pub rows: u64,
    /// Number of files.
    pub files: usize,
    /// Size of the files in bytes.
    pub bytes: u64,
}

/// The table, with the stores that its rows come from.
pub struct PersonsTable {
    tables: Tables,
    identities: Identities,
    metadata: Metadata,
    /// Application id under which the table's transactions record the log sequence of the copy.
    app_id: String,
    runtime: Handle,
    clock: Clock,
    cuts: Cuts,
    /// Opened at first use, and again after a failure. Locked for a whole copy or vacuum, so that only one
    /// runs at a time.
    table: Mutex<Option<DeltaTable>>,
}

impl std::fmt::Debug for PersonsTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersonsTable").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl PersonsTable {
    /// The table at its place, where it need not exist. Does no I/O. `app_id` names this node in the
    /// transactions of the table.
    pub fn new(
        tables: Tables,
        (identities, metadata): (Identities, Metadata),
        app_id: String,
        runtime: Handle,
        clock: Clock,
    ) -> Self {
        let (cuts, table) = (CUTS, Mutex::new(None));
        Self { tables, identities, metadata, app_id, runtime, clock, cuts, table }
    }

    /// Creates the table, without rows, if there is none. Returns the number of its damaged places; the
    /// next copy replaces them.
    ///
    /// # Errors
    ///
    /// See [`PersonsError`].
    pub fn create(&self) -> Result<usize, PersonsError> {
        self.with_table(|table| Ok(table.damage().len()))
    }

    /// Copies the persons, if the identity store has changed since the last copy. `None` if it has not, or if
    /// `shutdown` began before the end.
    ///
    /// # Errors
    ///
    /// See [`PersonsError`]. The vacuum removes files that were written and not committed.
    pub fn write(&self, shutdown: Option<&Shutdown>) -> Result<Option<Written>, PersonsError> {
        self.with_table(|table| self.write_to(table, shutdown))
    }

    /// Removes files of earlier copies, see [`DeltaTable::vacuum`]. Returns their paths.
    ///
    /// # Errors
    ///
    /// See [`PersonsError`].
    pub fn vacuum(&self, grace: Duration) -> Result<Vec<String>, PersonsError> {
        self.with_table(|table| Ok(self.runtime.block_on(table.vacuum(grace))?))
    }

    /// Runs `work` with the open table. After a failure the table is reopened the next time, as the state
    /// in the handle may be the cause.
    fn with_table<T>(
        &self,
        work: impl FnOnce(&DeltaTable) -> Result<T, PersonsError>,
    ) -> Result<T, PersonsError> {
        // Dropping an unfinished file removes it, which needs the runtime.
        let _context = self.runtime.enter();
        let mut open = self.table.lock();
        let table = match open.take() {
            Some(table) => table,
            None => self.open()?,
        };
        let done = work(&table)?;
        *open = Some(table);
        Ok(done)
    }

    fn open(&self) -> Result<DeltaTable, PersonsError> {
        let name = spec().name;
        let failed = |source| PersonsError::Io { path: self.tables.name(name).into(), source };
        let files = self.tables.writing(name);
        let table = files.map_err(failed)?.open_or_create(spec(), self.clock.clone());
        Ok(self.runtime.block_on(table)?)
    }

    fn write_to(
        &self,
        table: &DeltaTable,
        shutdown: Option<&Shutdown>,
    ) -> Result<Option<Written>, PersonsError> {
        let view = self.identities.view();
        let through = view.applied_sequence()?;
        let position = i64::try_from(through).unwrap_or(i64::MAX);
        let before = self.runtime.block_on(table.refresh())?;
        // After a power cut the store may be behind its copy, until the replay has caught up.
        if before.transaction(&self.app_id).is_some_and(|last| last >= position) {
            return Ok(None);
        }
        if !before.files.is_empty() && self.identities.is_incomplete()? {
            return Err(PersonsError::Incomplete);
        }
        let Some(add) = self.files(&view, table, shutdown)? else { return Ok(None) };
        if add.is_empty() && before.files.is_empty() {
            return Ok(None);
        }
        let written = Written {
            through,
            rows: add.iter().map(|file| file.rows).sum(),
            files: add.len(),
            bytes: add.iter().map(|file| file.size_bytes).sum(),
        };
        let edit = Edit {
            add,
            remove: before.files.clone(),
            transaction: Some((self.app_id.clone(), position)),
            kind: EditKind::Overwrite,
        };
        self.runtime.block_on(table.commit(edit))?;
        Ok(Some(written))
    }

    /// Writes all persons of the view to files that are not committed yet. `None` if the shutdown began.
    fn files(
        &self,
        view: &View,
        table: &DeltaTable,
        shutdown: Option<&Shutdown>,
    ) -> Result<Option<Vec<DataFile>>, PersonsError> {
        let layout = layout();
        let mut files = Files { owner: self, table, layout: &layout, open: None, done: Vec::new() };
        let mut batch = Batch::default();
        // Taken after the view, so that it contains every project that has persons in the view.
        let metadata = self.metadata.snapshot();
        for project in metadata.projects() {
            let mut written = Ok(());
            view.scan_persons_with_ids(project.id, |person, distinct_ids| {
                batch.push(project.id.0, person, distinct_ids);
                if batch.rows < self.cuts.batch_rows && batch.bytes < self.cuts.batch_bytes {
                    return Flow::Continue(());
                }
                written = batch.finish(table).and_then(|batch| files.write(&batch));
                match written.is_err() || shutdown.is_some_and(Shutdown::is_cancelled) {
                    true => Flow::Break(()),
                    false => Flow::Continue(()),
                }
            })?;
            written?;
            if shutdown.is_some_and(Shutdown::is_cancelled) {
                return Ok(None);
            }
        }
        if batch.rows > 0 {
            files.write(&batch.finish(table)?)?;
        }
        Ok(Some(files.finish()?))
    }
}

/// The files of one copy: the open one, and the finished ones.
struct Files<'a> {
    owner: &'a PersonsTable,
    table: &'a DeltaTable,
    layout: &'a Layout,
    open: Option<FileWriter>,
    done: Vec<DataFile>,
}

impl Files<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), StoreError> {
        let (runtime, cuts) = (&self.owner.runtime, self.owner.cuts);
        let mut writer = match self.open.take() {
            Some(writer) => writer,
            None => self.begin()?,
        };
        runtime.block_on(writer.write(batch))?;
        if writer.written_bytes() >= cuts.file_bytes {
            self.done.push(runtime.block_on(writer.finish())?);
        } else {
            self.open = Some(writer);
        }
        Ok(())
    }

    fn begin(&self) -> Result<FileWriter, StoreError> {
        let name = format!("persons-{}.parquet", Uuid::now_v7());
        let (store, spec) = (self.table.store(), self.table.spec());
        let writer = FileWriter::new(&store, spec, self.layout, Effort::Merge, (None, &name))?;
        Ok(writer.with_group_bytes(self.owner.cuts.group_bytes))
    }

    fn finish(mut self) -> Result<Vec<DataFile>, StoreError> {
        if let Some(writer) = self.open {
            self.done.push(self.owner.runtime.block_on(writer.finish())?);
        }
        Ok(self.done)
    }
}

/// Builder of a batch of rows.
#[derive(Default)]
struct Batch {
    rows: usize,
    /// Total length of the texts in bytes.
    bytes: usize,
    project_id: Int64Builder,
    id: Int64Builder,
    uuid: StringViewBuilder,
    distinct_ids: StringViewBuilder,
    properties: StringViewBuilder,
    created_at: TimestampMicrosecondBuilder,
    is_identified: BooleanBuilder,
    version: Int64Builder,
}

impl Batch {
    fn push(&mut self, project_id: i64, person: Person, distinct_ids: Vec<String>) {
        let distinct_ids = serde_json::Value::from(distinct_ids).to_string();
        let properties = serde_json::Value::Object(person.properties).to_string();
        self.rows += 1;
        self.bytes += distinct_ids.len() + properties.len();
        self.project_id.append_value(project_id);
        self.id.append_value(person.number);
        self.uuid.append_value(person.uuid.hyphenated().encode_lower(&mut [0; 36]));
        self.distinct_ids.append_value(distinct_ids);
        self.properties.append_value(properties);
        self.created_at.append_value(person.created_at.0);
        self.is_identified.append_value(person.is_identified);
        self.version.append_value(i64::try_from(person.version).unwrap_or(i64::MAX));
    }

    /// The rows so far as a batch with the columns of [`persons_schema`]; the builder is empty afterwards.
    fn finish(&mut self, table: &DeltaTable) -> Result<RecordBatch, StoreError> {
        (self.rows, self.bytes) = (0, 0);
        let schema = Arc::clone(&table.spec().schema);
        let batch = RecordBatch::try_new(
            schema,
            vec![
                Arc::new(self.project_id.finish()),
                Arc::new(self.id.finish()),
                Arc::new(self.uuid.finish()),
                Arc::new(self.distinct_ids.finish()),
                Arc::new(self.properties.finish()),
                Arc::new(self.created_at.finish().with_timezone("UTC")),
                Arc::new(self.is_identified.finish()),
                Arc::new(self.version.finish()),
            ],
        )?;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests;
