//! The files of a table's log, `_delta_log/`: finding, reading and writing commits, and writing
//! checkpoints. Knows file names and formats; what they mean to the table is in `state`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::json::LineDelimitedWriter;
use bytes::Bytes;
use deltalake_core::checkpoints::cleanup_expired_logs_for;
use deltalake_core::checkpoints::create_checkpoint;
use deltalake_core::errors::DeltaTableError;
use deltalake_core::kernel::Action;
use deltalake_core::kernel::CommitInfo;
use deltalake_core::kernel::MetadataExt;
use deltalake_core::kernel::Protocol;
use deltalake_core::kernel::new_metadata;
use deltalake_core::logstore::LogStoreRef;
use deltalake_core::logstore::StorageConfig;
use deltalake_core::logstore::commit_uri_from_version;
use deltalake_core::logstore::default_logstore;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::ObjectStoreExt;
use object_store::PutMode;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;
use url::Url;

use crate::clock::UnixMicros;
use crate::storage::delta::CHECKPOINT_INTERVAL;
use crate::storage::delta::LOG_COMMITS_MIN;
use crate::storage::delta::LOG_RETENTION;
use crate::storage::delta::TOMBSTONE_RETENTION;
use crate::storage::delta::TableSpec;
use crate::storage::delta::commit::Operation;
use crate::storage::delta::commit::Origin;
use crate::storage::delta::error::TableError;
use crate::storage::delta::schema;
use crate::storage::delta::state::READER_VERSION;
use crate::storage::delta::state::State;
use crate::storage::delta::state::WRITER_VERSION;

/// Directory of the log in the table.
const LOG: &str = "_delta_log";

/// Key of a commit's id in its `commitInfo`.
pub(super) const COMMIT_ID: &str = "weirCommit";

/// The actions of a checkpoint that make up the table.
const CHECKPOINT_COLUMNS: [&str; 5] = ["protocol", "metaData", "add", "remove", "txn"];

/// The log of one table.
pub(super) struct Log {
    pub(super) store: Arc<dyn ObjectStore>,
    table: &'static str,
    /// The library's view of the same files.
    ///
    /// It builds paths from the address of the table; as our store's root is the table, that
    /// address is `file:///`. The scheme makes it sort what it lists instead of trusting the store.
    library: LogStoreRef,
}

/// A table as it was found.
pub(super) struct Loaded {
    pub(super) state: State,
    /// Version of the checkpoint it started from; 0 if from none.
    pub(super) checkpoint: u64,
}

/// What became of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// Another committer has this version.
    Taken,
}

impl Log {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        table: &'static str,
    ) -> Result<Self, TableError> {
        let root = Url::parse("file:///")
            .map_err(|error| TableError::Invalid { table, reason: error.to_string() })?;
        let options = StorageConfig::default();
        let library = default_logstore(Arc::clone(&store), Arc::clone(&store), &root, &options);
        Ok(Self { store, table, library })
    }

    /// Reads the whole table; `None` if there is none.
    pub(super) async fn load(&self, spec: &TableSpec) -> Result<Option<Loaded>, TableError> {
        let names: Vec<String> = self
            .store
            .list(Some(&Path::from(LOG)))
            .map_ok(|meta| meta.location.filename().unwrap_or_default().to_owned())
            .try_collect()
            .await
            .map_err(|source| self.store_error(source))?;
        let newest = |suffix| names.iter().filter_map(|name| version_in(name, suffix)).max();
        let (checkpoint, commit) = (newest(".checkpoint.parquet"), newest(".json"));
        let mut state = match (checkpoint, commit) {
            (None, None) => return Ok(None),
            (Some(version), _) => {
                State::start(spec, version, &self.read_checkpoint(version).await?)?
            }
            (None, Some(_)) => {
                let first = self.read(0).await?;
                let first = first.ok_or_else(|| self.damaged(0, "it is missing"))?;
                State::start(spec, 0, &first)?
            }
        };
        loop {
            let version = state.version.saturating_add(1);
            match self.read(version).await? {
                Some(bytes) => {
                    let change = state.read(version, &bytes)?;
                    state.apply(change, Origin::Us);
                }
                None if commit.is_some_and(|newest| newest >= version) => {
                    return Err(self.damaged(version, "it is missing"));
                }
                None => break,
            }
        }
        Ok(Some(Loaded { state, checkpoint: checkpoint.unwrap_or(0) }))
    }

    /// Writes version 0, unless there is one.
    pub(super) async fn create(
        &self,
        spec: &TableSpec,
        now: UnixMicros,
    ) -> Result<Put, TableError> {
        let invalid = |error: &dyn std::error::Error| TableError::Invalid {
            table: self.table,
            reason: error.to_string(),
        };
        let protocol: Protocol = serde_json::from_value(json!({
            "minReaderVersion": READER_VERSION,
            "minWriterVersion": WRITER_VERSION,
        }))
        .map_err(|error| invalid(&error))?;
        let hours = |retention: std::time::Duration| {
            format!("interval {} hours", retention.as_secs() / 3600)
        };
        let properties = [
            ("delta.checkpointInterval", CHECKPOINT_INTERVAL.to_string()),
            ("delta.logRetentionDuration", hours(LOG_RETENTION)),
            ("delta.deletedFileRetentionDuration", hours(TOMBSTONE_RETENTION)),
        ];
        let columns = schema::of_spec(spec)?;
        let metadata = new_metadata(&columns, spec.partition_column, properties)
            .and_then(|metadata| metadata.with_name(spec.name.to_owned()))
            .map_err(|error| invalid(&error))?;
        let actions = vec![Action::Protocol(protocol), Action::Metadata(metadata)];
        let operation = Operation { name: "CREATE TABLE", mode: None, blind: true };
        let id = uuid::Uuid::new_v4().simple().to_string();
        let bytes = self.encode(0, operation, &id, actions, now)?;
        self.put(0, bytes).await
    }

    /// The text of a commit.
    pub(super) fn encode(
        &self,
        version: u64,
        operation: Operation,
        id: &str,
        actions: Vec<Action>,
        now: UnixMicros,
    ) -> Result<Bytes, TableError> {
        let parameters: HashMap<_, _> =
            operation.mode.map(|mode| ("mode".to_owned(), mode.into())).into_iter().collect();
        let info = CommitInfo {
            timestamp: Some(now.0.div_euclid(1_000)),
            operation: Some(operation.name.to_owned()),
            operation_parameters: Some(parameters),
            read_version: version.checked_sub(1),
            is_blind_append: Some(operation.blind),
            engine_info: Some(concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()),
            info: [(COMMIT_ID.to_owned(), id.into())].into(),
            ..CommitInfo::default()
        };
        let mut text = String::new();
        for action in std::iter::once(Action::CommitInfo(info)).chain(actions) {
            let line = serde_json::to_string(&action).map_err(|error| TableError::Invalid {
                table: self.table,
                reason: error.to_string(),
            })?;
            text.push_str(&line);
            text.push('\n');
        }
        Ok(text.into())
    }

    /// Writes a commit if its version is free.
    pub(super) async fn put(&self, version: u64, bytes: Bytes) -> Result<Put, TableError> {
        let path = commit_uri_from_version(Some(version));
        match self.store.put_opts(&path, bytes.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(Put::Done),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(Put::Taken),
            Err(source) => Err(TableError::InDoubt { table: self.table, version, source }),
        }
    }

    /// Reads a commit; `None` if there is none (any more).
    pub(super) async fn read(&self, version: u64) -> Result<Option<Bytes>, TableError> {
        self.get(&commit_uri_from_version(Some(version))).await
    }

    /// Version of the newest checkpoint by the log's own hint; `None` without a readable hint.
    pub(super) async fn last_checkpoint(&self) -> Result<Option<u64>, TableError> {
        let hint = self.get(&Path::from_iter([LOG, "_last_checkpoint"])).await?;
        let version = |hint: Bytes| {
            serde_json::from_slice::<serde_json::Value>(&hint).ok()?.get("version")?.as_u64()
        };
        Ok(hint.and_then(version))
    }

    /// Writes a checkpoint of the newest version, which it returns, and removes files of the log
    /// that are older than a checkpoint and than the retention. Does not touch the last
    /// [`LOG_COMMITS_MIN`] commits.
    pub(super) async fn checkpoint(&self, now: UnixMicros) -> Result<u64, TableError> {
        let library = Arc::clone(&self.library);
        let retention = i64::try_from(LOG_RETENTION.as_millis()).unwrap_or(i64::MAX);
        let oldest = now.0.div_euclid(1_000).saturating_sub(retention);
        let runtime = tokio::runtime::Handle::current();
        // The library waits for its I/O on the thread that calls it.
        let work = move || {
            runtime.block_on(async move {
                let mut table = deltalake_core::DeltaTable::new(Arc::clone(&library));
                table.load().await?;
                let version = table.snapshot()?.version();
                create_checkpoint(&table, None).await?;
                if let Some(replaced) = version.checked_sub(LOG_COMMITS_MIN) {
                    cleanup_expired_logs_for(replaced, &*library, oldest, None).await?;
                }
                Ok(version)
            })
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(DeltaTableError::Generic(error.to_string())))
            .map_err(|source| TableError::Checkpoint { table: self.table, source })
    }

    /// A checkpoint in the form of a commit: one JSON action per line.
    async fn read_checkpoint(&self, version: u64) -> Result<Bytes, TableError> {
        let path = Path::from_iter([LOG, &format!("{version:020}.checkpoint.parquet")]);
        let parquet = self.get(&path).await?.ok_or_else(|| self.damaged(version, "it vanished"))?;
        let lines = tokio::task::spawn_blocking(move || checkpoint_lines(parquet)).await;
        lines
            .map_err(|error| self.damaged(version, &error.to_string()))?
            .map_err(|error| self.damaged(version, &error.to_string()))
    }

    async fn get(&self, path: &Path) -> Result<Option<Bytes>, TableError> {
        let read = async { self.store.get(path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(self.store_error(source)),
        }
    }

    fn store_error(&self, source: object_store::Error) -> TableError {
        TableError::Store { table: self.table, source }
    }

    fn damaged(&self, version: u64, reason: &str) -> TableError {
        TableError::Damaged { table: self.table, version, reason: reason.to_owned() }
    }
}

/// The version in a file name of the log: 20 digits and `suffix`.
fn version_in(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// Turns the rows of a checkpoint, of which each has one action in one column, into lines.
fn checkpoint_lines(parquet: Bytes) -> Result<Bytes, parquet::errors::ParquetError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(parquet)?;
    let columns = builder.schema().fields().iter().enumerate();
    let wanted: Vec<usize> = columns
        .filter(|(_, field)| CHECKPOINT_COLUMNS.contains(&field.name().as_str()))
        .map(|(index, _)| index)
        .collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
    let mut writer = LineDelimitedWriter::new(Vec::new());
    for batch in builder.with_projection(mask).build()? {
        writer.write(&batch?)?;
    }
    writer.finish()?;
    let lines = writer.into_inner();
    // Rows of other actions have become empty objects.
    let lines: Vec<&[u8]> =
        lines.split(|byte| *byte == b'\n').filter(|line| *line != b"{}").collect();
    Ok(lines.join(&b'\n').into())
}
