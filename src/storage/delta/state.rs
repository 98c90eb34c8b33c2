//! The table in memory: what the log adds up to, what one commit changes, and whether an edit
//! fits. Pure: no I/O, no clock.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use deltalake_core::kernel::Action;
use deltalake_core::kernel::Add;
use deltalake_core::kernel::Metadata;
use deltalake_core::kernel::MetadataExt;
use deltalake_core::kernel::Protocol;
use deltalake_core::kernel::Remove;
use deltalake_core::kernel::StructType;
use deltalake_core::kernel::Transaction;
use deltalake_core::logstore::get_actions;
use hashbrown::HashSet;

use crate::clock::UnixMicros;
use crate::storage::delta::DataFile;
use crate::storage::delta::Edit;
use crate::storage::delta::EditKind;
use crate::storage::delta::TableSpec;
use crate::storage::delta::TableVersion;
use crate::storage::delta::commit::Origin;
use crate::storage::delta::error::TableError;
use crate::storage::delta::log::COMMIT_ID;
use crate::storage::delta::schema;
use crate::storage::delta::stats;

/// Newest protocol that this program reads and writes, and the one it creates tables with.
pub(super) const READER_VERSION: i32 = 1;
/// See [`READER_VERSION`].
pub(super) const WRITER_VERSION: i32 = 2;

/// Everything the log says about the table.
#[derive(Debug)]
pub(super) struct State {
    spec: TableSpec,
    pub(super) version: u64,
    columns: Columns,
    /// By path.
    pub(super) live: BTreeMap<String, Arc<DataFile>>,
    /// When a file left the table, in milliseconds since 1970, by path. Holds files that a vacuum
    /// has not yet found gone.
    pub(super) tombstones: HashMap<String, i64>,
    transactions: BTreeMap<String, i64>,
    /// Applications for which somebody else has committed since this state was loaded.
    foreign: HashSet<String>,
}

/// The table's columns, in three forms.
#[derive(Clone, Debug)]
struct Columns {
    metadata: Metadata,
    table: Arc<StructType>,
    files: SchemaRef,
}

/// What one commit (or a checkpoint) does to the state.
#[derive(Debug)]
pub(super) struct Change {
    version: u64,
    /// Id of the commit, if it is one of this program.
    pub(super) id: Option<String>,
    columns: Option<Columns>,
    add: Vec<Arc<DataFile>>,
    /// Path, and when it was removed.
    remove: Vec<(String, i64)>,
    transactions: Vec<(String, i64)>,
}

/// Reads one commit file of a table whose columns before it are `columns`.
fn read_change(
    spec: &TableSpec,
    columns: Option<&Columns>,
    version: u64,
    bytes: &bytes::Bytes,
) -> Result<Change, TableError> {
    let damaged = |reason| TableError::Damaged { table: spec.name, version, reason };
    let actions = get_actions(version, bytes).map_err(|error| damaged(error.to_string()))?;
    let mut change = Change {
        version,
        id: None,
        columns: None,
        add: Vec::new(),
        remove: Vec::new(),
        transactions: Vec::new(),
    };
    let mut added = Vec::new();
    for action in actions {
        match action {
            Action::Protocol(protocol) => check_protocol(spec, &protocol)?,
            Action::Metadata(metadata) => {
                change.columns = Some(read_columns(spec, version, metadata)?);
            }
            Action::Add(add) => added.push(add),
            Action::Remove(remove) => {
                change.remove.push((remove.path, remove.deletion_timestamp.unwrap_or(0)));
            }
            Action::Txn(transaction) => {
                change.transactions.push((transaction.app_id, transaction.version));
            }
            Action::CommitInfo(info) => {
                let id = info.info.get(COMMIT_ID).and_then(|id| id.as_str());
                change.id = id.map(str::to_owned);
            }
            Action::Cdc(_) | Action::DomainMetadata(_) => {}
        }
    }
    if !added.is_empty() {
        let columns = change.columns.as_ref().or(columns);
        let columns = columns.ok_or_else(|| damaged("files before columns".to_owned()))?;
        for add in added {
            change.add.push(Arc::new(read_file(spec, &columns.table, add)?));
        }
    }
    Ok(change)
}

fn check_protocol(spec: &TableSpec, protocol: &Protocol) -> Result<(), TableError> {
    let (reader, writer) = (protocol.min_reader_version(), protocol.min_writer_version());
    if reader > READER_VERSION || writer > WRITER_VERSION {
        let reason = format!("it needs reader version {reader} and writer version {writer}");
        return Err(TableError::Unsupported { table: spec.name, reason });
    }
    Ok(())
}

fn read_columns(spec: &TableSpec, version: u64, metadata: Metadata) -> Result<Columns, TableError> {
    let wanted: Vec<&str> = spec.partition_column.into_iter().collect();
    if metadata.partition_columns() != wanted {
        let reason = format!("partitioned by {:?}", metadata.partition_columns());
        let column = spec.partition_column.unwrap_or("*").to_owned();
        return Err(TableError::Schema { table: spec.name, column, reason });
    }
    let table = metadata.parse_schema().map_err(|error| TableError::Damaged {
        table: spec.name,
        version,
        reason: error.to_string(),
    })?;
    // Columns that are missing are added on opening; ones that clash are an error for good.
    schema::widened(&table, spec)?;
    let files = schema::file_schema(&table, spec)?;
    Ok(Columns { metadata, table: Arc::new(table), files })
}

fn read_file(spec: &TableSpec, table: &StructType, add: Add) -> Result<DataFile, TableError> {
    let unsupported = |reason| TableError::Unsupported { table: spec.name, reason };
    if add.deletion_vector.is_some() {
        return Err(unsupported(format!("{} has a deletion vector", add.path)));
    }
    let stats = add.stats.as_deref().and_then(|text| stats::decode(text, table));
    let size_bytes = u64::try_from(add.size);
    let (Some((stats, rows)), Ok(size_bytes)) = (stats, size_bytes) else {
        return Err(unsupported(format!("{} has no row count or no size", add.path)));
    };
    let partition = spec
        .partition_column
        .and_then(|column| add.partition_values.get(column).cloned())
        .flatten();
    Ok(DataFile { path: add.path, size_bytes, rows, partition, stats })
}

impl State {
    /// The state after the first thing read of a log: a checkpoint, or version 0.
    pub(super) fn start(
        spec: &TableSpec,
        version: u64,
        bytes: &bytes::Bytes,
    ) -> Result<Self, TableError> {
        let mut change = read_change(spec, None, version, bytes)?;
        let columns = change.columns.take().ok_or_else(|| TableError::Damaged {
            table: spec.name,
            version,
            reason: "no columns".to_owned(),
        })?;
        let mut state = Self {
            spec: spec.clone(),
            version,
            columns,
            live: BTreeMap::new(),
            tombstones: HashMap::new(),
            transactions: BTreeMap::new(),
            foreign: HashSet::new(),
        };
        state.apply(change, Origin::Us);
        Ok(state)
    }

    /// Reads the commit that makes `version` of this state.
    pub(super) fn read(&self, version: u64, bytes: &bytes::Bytes) -> Result<Change, TableError> {
        read_change(&self.spec, Some(&self.columns), version, bytes)
    }

    pub(super) fn apply(&mut self, change: Change, origin: Origin) {
        self.version = change.version;
        if let Some(columns) = change.columns {
            self.columns = columns;
        }
        for (path, removed_at) in change.remove {
            self.live.remove(&path);
            self.tombstones.insert(path, removed_at);
        }
        for file in change.add {
            self.tombstones.remove(&file.path);
            self.live.insert(file.path.clone(), file);
        }
        for (app_id, version) in change.transactions {
            if origin == Origin::Others {
                self.foreign.insert(app_id.clone());
            }
            self.transactions.insert(app_id, version);
        }
    }

    /// Takes over a state that was loaded anew. Whatever changed meanwhile was not this handle.
    pub(super) fn replace_by(&mut self, newer: Self) {
        let older = std::mem::replace(self, newer);
        self.foreign = older.foreign;
        for (app_id, version) in &self.transactions {
            if older.transactions.get(app_id) != Some(version) {
                self.foreign.insert(app_id.clone());
            }
        }
    }

    pub(super) fn table_version(&self) -> TableVersion {
        TableVersion {
            version: self.version,
            files: self.live.values().cloned().collect(),
            schema: Arc::clone(&self.columns.files),
            transactions: self.transactions.clone(),
        }
    }

    /// The metadata with the columns of the spec that the table lacks; `None` if it lacks none.
    pub(super) fn widened_metadata(&self) -> Result<Option<Metadata>, TableError> {
        let Some(wider) = schema::widened(&self.columns.table, &self.spec)? else {
            return Ok(None);
        };
        let metadata = self.columns.metadata.clone().with_schema(&wider);
        metadata.map(Some).map_err(|error| TableError::Schema {
            table: self.spec.name,
            column: "*".to_owned(),
            reason: error.to_string(),
        })
    }

    /// Whether exactly this edit has been committed: its transaction is the last one and its files,
    /// whose names no other edit has, are live.
    pub(super) fn has(&self, edit: &Edit) -> bool {
        let Some((app_id, version)) = &edit.transaction else { return false };
        !edit.add.is_empty()
            && self.transactions.get(app_id) == Some(version)
            && edit.add.iter().all(|file| self.live.contains_key(&file.path))
            && edit.remove.iter().all(|file| !self.live.contains_key(&file.path))
    }

    /// Whether the edit fits this state.
    pub(super) fn check(&self, edit: &Edit) -> Result<(), TableError> {
        let table = self.spec.name;
        self.check_form(edit).map_err(|reason| TableError::Invalid { table, reason })?;
        if let Some((app_id, offered)) = &edit.transaction {
            self.check_transaction(app_id, *offered)?;
        }
        let conflict = |reason| Err(TableError::Conflict { table, reason });
        for file in &edit.remove {
            if !self.live.contains_key(&file.path) {
                return conflict(format!("{} is no longer live", file.path));
            }
        }
        if edit.kind == EditKind::Overwrite && edit.remove.len() != self.live.len() {
            return conflict("there are live files that the edit does not know".to_owned());
        }
        Ok(())
    }

    fn check_transaction(&self, app_id: &str, offered: i64) -> Result<(), TableError> {
        let Some(current) = self.transactions.get(app_id).copied() else { return Ok(()) };
        let table = self.spec.name;
        let app_id = app_id.to_owned();
        if self.foreign.contains(&app_id) {
            return Err(TableError::Fenced { table, app_id, version: current });
        }
        if offered <= current {
            return Err(TableError::Stale { table, app_id, current, offered });
        }
        Ok(())
    }

    /// What is wrong with an edit whatever the table is.
    fn check_form(&self, edit: &Edit) -> Result<(), String> {
        if edit.kind == EditKind::Append && !edit.remove.is_empty() {
            return Err("an append removes nothing".to_owned());
        }
        let mut paths = HashSet::new();
        for file in &edit.add {
            let path = &file.path;
            if !paths.insert(path.as_str()) {
                return Err(format!("{path} is added twice"));
            }
            if self.live.contains_key(path) || self.tombstones.contains_key(path) {
                return Err(format!("the name {path} was used before"));
            }
            if path.starts_with('_') || path.starts_with('.') {
                return Err(format!("{path} would be hidden from readers"));
            }
            if file.partition.is_some() != self.spec.partition_column.is_some() {
                return Err(format!(
                    "{path}: a partition where there is none, or none where one is"
                ));
            }
            let literal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if !file.partition.iter().all(|value| !value.is_empty() && value.chars().all(literal)) {
                return Err(format!("{path}: the partition is no plain word"));
            }
            let name = path.rsplit('/').next().unwrap_or(path);
            if *path != self.spec.file_path(file.partition.as_deref(), name) {
                return Err(format!("{path} is not in the directory of its partition"));
            }
        }
        let mut removed = HashSet::new();
        match edit.remove.iter().find(|file| !removed.insert(file.path.as_str())) {
            Some(file) => Err(format!("{} is removed twice", file.path)),
            None => Ok(()),
        }
    }

    /// The edit in the words of the log. Times are milliseconds there.
    pub(super) fn actions(&self, edit: &Edit, now: UnixMicros) -> Vec<Action> {
        let millis = now.0.div_euclid(1_000);
        let data_change = edit.kind != EditKind::Compact;
        let partition_values = |file: &DataFile| -> HashMap<String, Option<String>> {
            let column = self.spec.partition_column.map(str::to_owned);
            column.map(|column| (column, file.partition.clone())).into_iter().collect()
        };
        let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let adds = edit.add.iter().map(|file| {
            Action::Add(Add {
                path: file.path.clone(),
                partition_values: partition_values(file),
                size: size(file.size_bytes),
                modification_time: millis,
                data_change,
                stats: Some(stats::encode(&file.stats, file.rows)),
                ..Add::default()
            })
        });
        let removes = edit.remove.iter().map(|file| {
            Action::Remove(Remove {
                path: file.path.clone(),
                data_change,
                deletion_timestamp: Some(millis),
                extended_file_metadata: Some(true),
                partition_values: Some(partition_values(file)),
                size: Some(size(file.size_bytes)),
                ..Remove::default()
            })
        });
        let transaction = edit.transaction.iter().map(|(app_id, version)| {
            Action::Txn(Transaction::new_with_last_update(app_id, *version, Some(millis)))
        });
        adds.chain(removes).chain(transaction).collect()
    }
}
