//! In-memory state of a Delta table: replays commits, and checks edits for conflicts. Pure: no I/O, no clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use hashbrown::HashSet;

use crate::delta::actions::{Action, Add, Metadata, Protocol, ReadError, Remove, Transaction};
use crate::delta::commit::Origin;
use crate::delta::error::TableError;
use crate::delta::types::StructType;
use crate::delta::version::{
    DAMAGE_APP, DataFile, Edit, EditKind, TOMBSTONE_RETENTION, TableSpec, TableVersion,
};
use crate::delta::{actions, schema, stats};
use crate::derived::DerivedTag;
use crate::exact::ExactColumns;
use weir_base::clock::UnixMicros;

/// The newest protocol that this program reads and writes. New tables get it.
pub(super) const PROTOCOL: Protocol = Protocol { min_reader_version: 1, min_writer_version: 2 };

/// The state of the table after replaying the log.
#[derive(Debug)]
pub(super) struct State {
    spec: TableSpec,
    pub(super) version: u64,
    protocol: Protocol,
    columns: Columns,
    /// Live files by path.
    pub(super) live: BTreeMap<String, Live>,
    /// Live files that are missing in the store. They are hidden from readers, but stay in the log, as an
    /// operator may restore them.
    missing: HashSet<String>,
    /// Tombstones: time of the removal of a file in milliseconds since 1970, by path. Contains files until a
    /// vacuum finds them deleted.
    pub(super) tombstones: HashMap<String, i64>,
    /// Removed files that a reader of this process still had when they were last looked at, by path.
    read: HashMap<String, Weak<DataFile>>,
    /// The last transaction of each application.
    transactions: BTreeMap<String, Transaction>,
    /// Applications for which another handle has committed since this state was loaded.
    foreign: HashSet<String>,
}

/// A file of the table.
#[derive(Clone, Debug)]
pub(super) struct Live {
    file: Arc<DataFile>,
    /// The action as its writer wrote it: fields that this program does not use must survive a checkpoint.
    add: Add,
}

/// The table's columns, in three representations.
#[derive(Clone, Debug)]
struct Columns {
    metadata: Metadata,
    table: Arc<StructType>,
    files: SchemaRef,
}

/// Change of the state by one commit or checkpoint.
#[derive(Debug)]
pub(super) struct Change {
    version: u64,
    /// Id of the commit, if it is one of this program.
    pub(super) id: Option<String>,
    protocol: Option<Protocol>,
    columns: Option<Columns>,
    add: Vec<Live>,
    /// Path and time of the removal.
    remove: Vec<(String, i64)>,
    transactions: Vec<Transaction>,
}

/// Reads one commit file of a table whose columns before it are `columns`.
fn read_change(
    spec: &TableSpec,
    columns: Option<&Columns>,
    version: u64,
    bytes: &[u8],
) -> Result<Change, TableError> {
    let table = spec.name;
    let read = actions::decode(bytes).map_err(|error| match error {
        ReadError::Damaged(reason) => TableError::Damaged { table, version, reason },
        ReadError::Unsupported(reason) => TableError::Unsupported { table, reason },
    })?;
    if let Some(protocol) = &read.protocol {
        check_protocol(spec, protocol)?;
    }
    let mut change = Change {
        version,
        id: read.provenance.id,
        protocol: read.protocol,
        columns: read.metadata.map(|metadata| read_columns(spec, metadata)).transpose()?,
        add: Vec::new(),
        remove: Vec::new(),
        transactions: read.transactions,
    };
    let removed = |remove: Remove| (remove.path, remove.deletion_timestamp.unwrap_or(0));
    change.remove = read.remove.into_iter().map(removed).collect();
    if !read.add.is_empty() {
        let columns = change.columns.as_ref().or(columns);
        let reason = || "files before columns".to_owned();
        let columns =
            columns.ok_or_else(|| TableError::Damaged { table, version, reason: reason() })?;
        let files = read.add.into_iter().map(|add| read_file(spec, &columns.table, add));
        change.add = files.collect::<Result<_, _>>()?;
    }
    Ok(change)
}

fn check_protocol(spec: &TableSpec, protocol: &Protocol) -> Result<(), TableError> {
    let Protocol { min_reader_version: reader, min_writer_version: writer } = *protocol;
    if reader > PROTOCOL.min_reader_version || writer > PROTOCOL.min_writer_version {
        let reason = format!(
            "it was made by a newer Weir, or changed by another program: it needs reader version {reader} and writer \
             version {writer}"
        );
        return Err(TableError::Unsupported { table: spec.name, reason });
    }
    Ok(())
}

fn read_columns(spec: &TableSpec, metadata: Metadata) -> Result<Columns, TableError> {
    let wanted: Vec<&str> = spec.partition_column.into_iter().collect();
    if metadata.partition_columns != wanted {
        let reason = format!("partitioned by {:?}", metadata.partition_columns);
        let column = spec.partition_column.unwrap_or("*").to_owned();
        return Err(TableError::Schema { table: spec.name, column, reason });
    }
    let table = StructType::parse(&metadata.schema_string).map_err(|error| {
        let reason = format!("its columns cannot be read: {error}");
        TableError::Unsupported { table: spec.name, reason }
    })?;
    // Missing columns are added at opening; conflicting columns are a permanent error.
    schema::widened(&table, spec)?;
    let files = schema::file_schema(&table, spec);
    Ok(Columns { metadata, table: Arc::new(table), files })
}

/// The tag of a file with the columns whose NULLs mean that there was no value. Other readers skip it.
const EXACT: &str = "weir.exact";

/// The tag of a file with the columns that were computed.
const DERIVED: &str = "weir.derived";

fn tags(file: &DataFile) -> BTreeMap<String, Option<String>> {
    let exact = (EXACT.to_owned(), Some(file.exact.to_text()));
    let derived = file.derived.to_text().map(|text| (DERIVED.to_owned(), Some(text)));
    std::iter::once(exact).chain(derived).collect()
}

fn read_file(spec: &TableSpec, table: &StructType, add: Add) -> Result<Live, TableError> {
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
    let tag = |name: &str| add.tags.as_ref().and_then(|tags| tags.get(name)?.as_deref());
    let exact = tag(EXACT).map(ExactColumns::of_text).unwrap_or_default();
    let derived = tag(DERIVED).map(DerivedTag::of_text).unwrap_or_default();
    let path = add.path.clone();
    let file = DataFile { path, size_bytes, rows, partition, stats, exact, derived };
    Ok(Live { file: Arc::new(file), add })
}

impl State {
    /// The state after the first file of a load: a checkpoint, or version 0.
    pub(super) fn start(spec: &TableSpec, version: u64, bytes: &[u8]) -> Result<Self, TableError> {
        let mut change = read_change(spec, None, version, bytes)?;
        let damaged = |what: &str| TableError::Damaged {
            table: spec.name,
            version,
            reason: format!("no {what}"),
        };
        let protocol = change.protocol.ok_or_else(|| damaged("protocol"))?;
        let columns = change.columns.take().ok_or_else(|| damaged("columns"))?;
        let mut state = Self::empty(spec, protocol, columns);
        state.apply(change, Origin::Us);
        Ok(state)
    }

    /// The state of a table whose version 0 is lost: version 0 as this program writes it, with `metadata`.
    pub(super) fn start_without(spec: &TableSpec, metadata: Metadata) -> Result<Self, TableError> {
        Ok(Self::empty(spec, PROTOCOL, read_columns(spec, metadata)?))
    }

    fn empty(spec: &TableSpec, protocol: Protocol, columns: Columns) -> Self {
        Self {
            spec: spec.clone(),
            version: 0,
            protocol,
            columns,
            live: BTreeMap::new(),
            missing: HashSet::new(),
            tombstones: HashMap::new(),
            read: HashMap::new(),
            transactions: BTreeMap::new(),
            foreign: HashSet::new(),
        }
    }

    /// Reads the commit that leads from this state to `version`.
    pub(super) fn read(&self, version: u64, bytes: &[u8]) -> Result<Change, TableError> {
        read_change(&self.spec, Some(&self.columns), version, bytes)
    }

    pub(super) fn apply(&mut self, change: Change, origin: Origin) {
        self.version = change.version;
        if let Some(protocol) = change.protocol {
            self.protocol = protocol;
        }
        if let Some(columns) = change.columns {
            self.columns = columns;
        }
        for (path, removed_at) in change.remove {
            if let Some(live) = self.live.remove(&path) {
                self.read.insert(path.clone(), Arc::downgrade(&live.file));
            }
            self.missing.remove(&path);
            self.tombstones.insert(path, removed_at);
        }
        for live in change.add {
            self.tombstones.remove(&live.file.path);
            self.live.insert(live.file.path.clone(), live);
        }
        for transaction in change.transactions {
            if origin == Origin::Others {
                self.foreign.insert(transaction.app_id.clone());
            }
            self.transactions.insert(transaction.app_id.clone(), transaction);
        }
    }

    /// Skips a lost commit.
    pub(super) fn skip(&mut self, version: u64) {
        self.version = version;
    }

    /// Visible live files for which `is_there` is false.
    pub(super) fn absent(&self, is_there: impl Fn(&str) -> bool) -> Vec<Arc<DataFile>> {
        self.seen().filter(|file| !is_there(&file.path)).cloned().collect()
    }

    /// Hides live files from readers.
    pub(super) fn hide(&mut self, files: &[Arc<DataFile>]) {
        self.missing.extend(files.iter().map(|file| file.path.clone()));
    }

    /// The live files without the missing ones.
    fn seen(&self) -> impl Iterator<Item = &Arc<DataFile>> {
        let files = self.live.values().map(|live| &live.file);
        files.filter(|file| !self.missing.contains(&file.path))
    }

    /// Replaces the state by a newly loaded one. All changes since then come from other handles.
    pub(super) fn replace_by(&mut self, newer: Self) {
        let older = std::mem::replace(self, newer);
        self.foreign = older.foreign;
        for (app_id, transaction) in &self.transactions {
            let before = older.transactions.get(app_id);
            if before.is_none_or(|before| before.version != transaction.version) {
                self.foreign.insert(app_id.clone());
            }
        }
        self.missing = older.missing;
        self.missing.retain(|path| self.live.contains_key(path));
        self.read = older.read;
        for (path, before) in older.live {
            match self.live.get_mut(&path) {
                // Its readers have this one.
                Some(live) if live.file == before.file => live.file = before.file,
                _ => {
                    self.read.insert(path, Arc::downgrade(&before.file));
                }
            }
        }
    }

    /// Forgets the removed files that no reader has any more.
    pub(super) fn forget_unread(&mut self) {
        self.read.retain(|_, file| file.strong_count() > 0);
    }

    /// Whether a removed file is part of a version that somebody in this process still has.
    pub(super) fn is_read(&self, path: &str) -> bool {
        self.read.get(path).is_some_and(|file| file.strong_count() > 0)
    }

    pub(super) fn table_version(&self) -> TableVersion {
        TableVersion {
            version: self.version,
            files: self.seen().cloned().collect(),
            schema: Arc::clone(&self.columns.files),
            transactions: self
                .transactions
                .values()
                .map(|transaction| (transaction.app_id.clone(), transaction.version))
                .collect(),
        }
    }

    /// The metadata with the columns of a spec that the table lacks; `None` if it lacks none.
    pub(super) fn widened_metadata(
        &self,
        spec: &TableSpec,
    ) -> Result<Option<Metadata>, TableError> {
        let Some(wider) = schema::widened(&self.columns.table, spec)? else {
            return Ok(None);
        };
        let schema_string = wider.to_json().map_err(|reason| TableError::Schema {
            table: self.spec.name,
            column: "*".to_owned(),
            reason,
        })?;
        Ok(Some(Metadata { schema_string, ..self.columns.metadata.clone() }))
    }

    /// Whether exactly this edit has been committed: its transaction is the last one, its added files,
    /// whose names are unique, are live, and its removed files are not. An edit without a transaction and
    /// added files cannot be recognized; it counts as committed if it was tried before (`is_again`), when
    /// it was valid.
    pub(super) fn has(&self, edit: &Edit, is_again: bool) -> bool {
        let is_named = edit.transaction.is_some() && !edit.add.is_empty();
        let is_last = |(app_id, version): &(String, i64)| {
            let is_own = !edit.add.is_empty() || !self.foreign.contains(app_id);
            is_own && self.position(app_id) == Some(*version)
        };
        (is_named || is_again)
            && edit.transaction.iter().all(is_last)
            && edit.add.iter().all(|file| self.live.contains_key(&file.path))
            && edit.remove.iter().all(|file| !self.live.contains_key(&file.path))
    }

    /// Time at which lost commits were last found, if ever.
    pub(super) fn damaged_at(&self) -> Option<UnixMicros> {
        let mark = self.transactions.get(DAMAGE_APP)?;
        // Without a time, every file may be older.
        let millis = mark.last_updated.unwrap_or(i64::MAX);
        Some(UnixMicros(millis.saturating_mul(1_000).saturating_add(999)))
    }

    /// The number of the last transaction of an application.
    pub(super) fn position(&self, app_id: &str) -> Option<i64> {
        self.transactions.get(app_id).map(|transaction| transaction.version)
    }

    /// Checks that the edit is valid and does not conflict with this state.
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
        if edit.kind == EditKind::Overwrite && edit.remove.len() != self.seen().count() {
            return conflict("there are live files that the edit does not know".to_owned());
        }
        Ok(())
    }

    fn check_transaction(&self, app_id: &str, offered: i64) -> Result<(), TableError> {
        let Some(current) = self.position(app_id) else { return Ok(()) };
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

    /// The action that commits an application's last transaction again.
    pub(super) fn claim(&self, app_id: &str, now: UnixMicros) -> Result<Action, TableError> {
        let version = self.position(app_id).unwrap_or(0);
        if self.foreign.contains(app_id) {
            let app_id = app_id.to_owned();
            return Err(TableError::Fenced { table: self.spec.name, app_id, version });
        }
        let last_updated = Some(now.0.div_euclid(1_000));
        Ok(Action::Transaction(Transaction { app_id: app_id.to_owned(), version, last_updated }))
    }

    /// Checks the edit itself, independent of concurrent changes.
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

    /// The edit as actions of the log, which has times in milliseconds.
    pub(super) fn actions(&self, edit: &Edit, now: UnixMicros) -> Vec<Action> {
        let millis = now.0.div_euclid(1_000);
        let data_change = edit.kind != EditKind::Compact;
        let partition_values = |file: &DataFile| -> BTreeMap<String, Option<String>> {
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
                tags: Some(tags(file)),
                deletion_vector: None,
            })
        });
        // An overwrite also removes the missing files, which its caller cannot see.
        let overwritten = (edit.kind == EditKind::Overwrite).then_some(&self.missing);
        let unseen = overwritten.into_iter().flatten().filter_map(|path| self.live.get(path));
        let removed = edit.remove.iter().chain(unseen.map(|live| &live.file));
        let removes = removed.map(|file| {
            Action::Remove(Remove {
                data_change,
                extended_file_metadata: Some(true),
                partition_values: Some(partition_values(file)),
                size: Some(size(file.size_bytes)),
                ..Remove::bare(file.path.clone(), millis)
            })
        });
        let transaction = edit.transaction.iter().map(|(app_id, version)| {
            Action::Transaction(Transaction {
                app_id: app_id.clone(),
                version: *version,
                last_updated: Some(millis),
            })
        });
        adds.chain(removes).chain(transaction).collect()
    }

    /// The whole state as the actions of a checkpoint, without data changes. Tombstones stay as long as the
    /// table's properties require.
    pub(super) fn checkpoint(&self, now: UnixMicros) -> Vec<Action> {
        let retention = i64::try_from(TOMBSTONE_RETENTION.as_millis()).unwrap_or(i64::MAX);
        let oldest = now.0.div_euclid(1_000).saturating_sub(retention);
        let table =
            [Action::Protocol(self.protocol), Action::Metadata(self.columns.metadata.clone())];
        let transactions = self.transactions.values().cloned().map(Action::Transaction);
        let removes = self.tombstones.iter().filter(|(_, removed_at)| **removed_at > oldest);
        let removes = removes.map(|(path, at)| Action::Remove(Remove::bare(path.clone(), *at)));
        let adds = self
            .live
            .values()
            .map(|live| Action::Add(Add { data_change: false, ..live.add.clone() }));
        table.into_iter().chain(transactions).chain(removes).chain(adds).collect()
    }
}
