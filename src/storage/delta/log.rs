//! Files of a table's log, `_delta_log/`: list, read, write and remove commits and checkpoints. It knows
//! file names; `state` interprets the contents.
//!
//! # Damage
//!
//! A commit that is unreadable, or missing while later ones exist, is skipped as a whole. An unreadable
//! checkpoint is replaced by an older one. The rest of the table is served. Commits and checkpoints of this
//! program have checksums: a flipped digit could change a version or a bound, and hide rows. Crashes of
//! this program leave no such file: a commit gets its name only after its bytes are synced
//! (`storage::durable`), so even the last one is complete or absent after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode};
use uuid::Uuid;

use crate::delta::actions::{Action, CommitInfo, Format, Metadata, Provenance};
use crate::delta::checkpoint::Hint;
use crate::delta::commit::{Operation, Origin};
use crate::delta::error::TableError;
use crate::delta::state::{PROTOCOL, State};
use crate::delta::version::{
    CHECKPOINT_INTERVAL, Damage, LOG_COMMITS_MIN, LOG_RETENTION, TOMBSTONE_RETENTION, TableSpec,
};
use crate::delta::{actions, checkpoint, schema};
use weir_base::clock::UnixMicros;

/// Directory of the log in the table.
const LOG: &str = "_delta_log";

/// File that contains the version of the newest checkpoint.
const LAST_CHECKPOINT: &str = "_last_checkpoint";

/// Suffix of the name of a commit.
const COMMIT: &str = ".json";

/// Suffix of the name of a single-file checkpoint.
const CHECKPOINT: &str = ".checkpoint.parquet";

/// Digits of a version in a file name.
const DIGITS: usize = 20;

/// Commits that a load reads at the same time.
const READ_AHEAD: usize = 16;

/// Maximum attempts to load a table while another process removes files of its log.
const LOADS_MAX: u32 = 5;

/// The log of one table.
pub(super) struct Log {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) table: &'static str,
}

/// Result of loading a table.
pub(super) struct Loaded {
    pub(super) state: State,
    /// Version of the checkpoint that the load started from; 0 for none.
    pub(super) checkpoint: u64,
    /// The parts that could not be read.
    pub(super) damage: Vec<Damage>,
}

/// Outcome of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// The version exists already.
    Taken,
}

/// The files of the log that a load reads.
#[derive(Debug, Default)]
struct Listing {
    commits: BTreeSet<u64>,
    checkpoints: BTreeSet<u64>,
    /// Whether there are multi-part checkpoints, or checkpoints of version 2 with an id in the name.
    has_other_checkpoints: bool,
}

impl Log {
    pub(super) fn new(store: Arc<dyn ObjectStore>, table: &'static str) -> Self {
        Self { store, table }
    }

    /// Reads the whole table; `None` if there is none.
    pub(super) async fn load(
        &self,
        spec: &TableSpec,
        now: UnixMicros,
    ) -> Result<Option<Loaded>, TableError> {
        for _ in 0..LOADS_MAX {
            let listing = self.listing().await?;
            if listing.commits.is_empty() && listing.checkpoints.is_empty() {
                return match listing.has_other_checkpoints {
                    true => Err(self.unsupported_checkpoints()),
                    false => Ok(None),
                };
            }
            if let Some(loaded) = self.replay(spec, &listing, now).await? {
                return Ok(Some(loaded));
            }
        }
        Err(TableError::Busy { table: self.table, attempts: LOADS_MAX })
    }

    async fn listing(&self) -> Result<Listing, TableError> {
        let mut listing = Listing::default();
        for file in self.files().await? {
            let name = file.location.filename().unwrap_or_default();
            if let Some(version) = version_in(name, COMMIT) {
                listing.commits.insert(version);
            } else if let Some(version) = version_in(name, CHECKPOINT) {
                listing.checkpoints.insert(version);
            } else if name.contains(".checkpoint.") {
                listing.has_other_checkpoints = true;
            }
        }
        Ok(listing)
    }

    async fn files(&self) -> Result<Vec<ObjectMeta>, TableError> {
        let files = self.store.list(Some(&Path::from(LOG))).try_collect().await;
        files.map_err(|source| self.store_error(source))
    }

    /// Replays the log. `None` if a listed file has been removed since: then there is a newer checkpoint.
    async fn replay(
        &self,
        spec: &TableSpec,
        listing: &Listing,
        now: UnixMicros,
    ) -> Result<Option<Loaded>, TableError> {
        let Some(mut loaded) = self.start(spec, listing, now).await? else { return Ok(None) };
        let (state, damage) = (&mut loaded.state, &mut loaded.damage);
        let newest = listing.commits.last().max(listing.checkpoints.last()).copied().unwrap_or(0);
        let mut ahead = BTreeMap::new();
        loop {
            let version = state.version.saturating_add(1);
            if !ahead.contains_key(&version) {
                ahead = self.read_ahead(version, listing).await?;
            }
            let Some(bytes) = ahead.remove(&version).flatten() else {
                if listing.commits.contains(&version) {
                    return Ok(None);
                }
                if version > newest {
                    return Ok(Some(loaded));
                }
                let next = listing.commits.range(version..).next().copied();
                let last = next.map_or(newest, |next| next.saturating_sub(1));
                damage.push(Damage { first: version, last, reason: "missing".to_owned() });
                state.skip(last);
                continue;
            };
            match state.read(version, &bytes) {
                Ok(change) => state.apply(change, Origin::Us),
                Err(TableError::Damaged { reason, .. }) => {
                    damage.push(Damage { first: version, last: version, reason });
                    state.skip(version);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a commit, and those that are listed after it at the same time: in a bucket, each takes a while.
    async fn read_ahead(
        &self,
        version: u64,
        listing: &Listing,
    ) -> Result<BTreeMap<u64, Option<Bytes>>, TableError> {
        let listed = listing.commits.range(version.saturating_add(1)..).take(READ_AHEAD - 1);
        let reads = std::iter::once(version).chain(listed.copied());
        let reads = reads.map(|version| async move { Ok((version, self.read(version).await?)) });
        let reads: Vec<_> = reads.collect();
        stream::iter(reads).buffer_unordered(READ_AHEAD).try_collect().await
    }

    /// The newest readable checkpoint, or else version 0. `None` as for [`Log::replay`].
    async fn start(
        &self,
        spec: &TableSpec,
        listing: &Listing,
        now: UnixMicros,
    ) -> Result<Option<Loaded>, TableError> {
        let mut damage = Vec::new();
        for version in listing.checkpoints.iter().rev().copied() {
            let Some(parquet) = self.get(&path_of(version, CHECKPOINT)).await? else {
                return Ok(None);
            };
            let lines = tokio::task::spawn_blocking(move || checkpoint::decode(parquet)).await;
            let lines = match lines {
                Ok(lines) => lines.map_err(|reason| self.damaged(version, reason)),
                // The Parquet library panics on some damaged files.
                Err(error) if error.is_panic() => Err(self.damaged(version, error.to_string())),
                Err(error) => return Err(self.failed_checkpoint(error.to_string())),
            };
            match lines.and_then(|lines| State::start(spec, version, &lines)) {
                Ok(state) => return Ok(Some(Loaded { state, checkpoint: version, damage })),
                Err(TableError::Damaged { reason, .. }) => {
                    let reason = format!("the checkpoint: {reason}");
                    damage.push(Damage { first: version, last: version, reason });
                }
                Err(error) => return Err(error),
            }
        }
        let first = self.read(0).await?;
        if first.is_none() && listing.commits.contains(&0) {
            return Ok(None);
        }
        if first.is_none() && listing.has_other_checkpoints {
            return Err(self.unsupported_checkpoints());
        }
        let started = match first {
            Some(bytes) => State::start(spec, 0, &bytes),
            None => Err(self.damaged(0, "it is missing".to_owned())),
        };
        let state = match started {
            // Version 0 contains only the columns, and those of a new table are in the spec.
            Err(TableError::Damaged { reason, .. }) => {
                damage.push(Damage { first: 0, last: 0, reason });
                State::start_without(spec, self.first_metadata(spec, now)?)?
            }
            started => started?,
        };
        Ok(Some(Loaded { state, checkpoint: 0, damage }))
    }

    /// Writes version 0, unless it exists.
    pub(super) async fn create(
        &self,
        spec: &TableSpec,
        now: UnixMicros,
    ) -> Result<Put, TableError> {
        let actions =
            vec![Action::Protocol(PROTOCOL), Action::Metadata(self.first_metadata(spec, now)?)];
        let operation = Operation { name: "CREATE TABLE", mode: None, blind: true };
        let id = Uuid::new_v4().simple().to_string();
        let bytes = self.encode(0, operation, id, &actions, now)?;
        self.put(0, bytes).await
    }

    /// The columns and properties of a new table.
    fn first_metadata(&self, spec: &TableSpec, now: UnixMicros) -> Result<Metadata, TableError> {
        let hours = |retention: std::time::Duration| {
            format!("interval {} hours", retention.as_secs() / 3600)
        };
        let properties = [
            ("delta.checkpointInterval", CHECKPOINT_INTERVAL.to_string()),
            ("delta.logRetentionDuration", hours(LOG_RETENTION)),
            ("delta.deletedFileRetentionDuration", hours(TOMBSTONE_RETENTION)),
        ];
        let properties = properties.map(|(key, value)| (key.to_owned(), Some(value)));
        Ok(Metadata {
            id: Uuid::new_v4().to_string(),
            name: Some(spec.name.to_owned()),
            description: None,
            format: Format { provider: "parquet".to_owned(), options: BTreeMap::new() },
            schema_string: schema::of_spec(spec)?
                .to_json()
                .map_err(|reason| self.invalid(reason))?,
            partition_columns: spec.partition_column.into_iter().map(str::to_owned).collect(),
            created_time: Some(now.0.div_euclid(1_000)),
            configuration: properties.into(),
        })
    }

    /// The text of a commit.
    pub(super) fn encode(
        &self,
        version: u64,
        operation: Operation,
        id: String,
        actions: &[Action],
        now: UnixMicros,
    ) -> Result<Bytes, TableError> {
        let invalid = |reason| self.invalid(reason);
        let encoded = actions::encode(actions).map_err(invalid)?;
        let info = CommitInfo {
            timestamp: now.0.div_euclid(1_000),
            operation: operation.name,
            operation_parameters: operation.mode.map(|mode| ("mode", mode)).into_iter().collect(),
            read_version: version.checked_sub(1),
            is_blind_append: operation.blind,
            engine_info: concat!("weir/", env!("CARGO_PKG_VERSION")),
            provenance: Provenance::of(id, actions.len(), &encoded),
        };
        let text = actions::encode(&[Action::CommitInfo(info)]).map_err(invalid)?;
        Ok((text + &encoded).into())
    }

    /// Writes a commit if its version is free.
    pub(super) async fn put(&self, version: u64, bytes: Bytes) -> Result<Put, TableError> {
        let path = path_of(version, COMMIT);
        match self.store.put_opts(&path, bytes.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(Put::Done),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(Put::Taken),
            Err(source) => Err(TableError::InDoubt { table: self.table, version, source }),
        }
    }

    /// Reads a commit; `None` if it does not exist or was removed.
    pub(super) async fn read(&self, version: u64) -> Result<Option<Bytes>, TableError> {
        self.get(&path_of(version, COMMIT)).await
    }

    /// Version of the newest checkpoint from `_last_checkpoint`; `None` if that cannot be read.
    pub(super) async fn last_checkpoint(&self) -> Result<Option<u64>, TableError> {
        let hint = self.get(&Path::from_iter([LOG, LAST_CHECKPOINT])).await?;
        Ok(hint.and_then(|hint| Hint::parse(&hint)).map(|hint| hint.version))
    }

    /// Writes a checkpoint of `version`, which consists of `actions`.
    pub(super) async fn write_checkpoint(
        &self,
        version: u64,
        actions: Vec<Action>,
    ) -> Result<(), TableError> {
        let work = move || {
            let parquet = checkpoint::encode(&actions).map_err(|error| error.to_string())?;
            let hint = Hint::of(version, &actions, parquet.len()).to_json()?;
            Ok((parquet, hint))
        };
        let encoded = tokio::task::spawn_blocking(work).await;
        let (parquet, hint) = encoded
            .unwrap_or_else(|error| Err(error.to_string()))
            .map_err(|reason| self.failed_checkpoint(reason))?;
        // In this order: readers would fail on a hint without its checkpoint.
        for (path, bytes) in [
            (path_of(version, CHECKPOINT), Bytes::from(parquet)),
            (Path::from_iter([LOG, LAST_CHECKPOINT]), Bytes::from(hint)),
        ] {
            self.store.put(&path, bytes.into()).await.map_err(|source| self.store_error(source))?;
        }
        Ok(())
    }

    /// Removes commits and checkpoints that no reader needs: those before a checkpoint that is older than
    /// the last [`LOG_COMMITS_MIN`] commits before `version`, and older than every file written within
    /// [`LOG_RETENTION`].
    pub(super) async fn clean_up(&self, version: u64, now: UnixMicros) -> Result<(), TableError> {
        let Some(replaced) = version.checked_sub(LOG_COMMITS_MIN) else { return Ok(()) };
        let retention = i64::try_from(LOG_RETENTION.as_micros()).unwrap_or(i64::MAX);
        let cutoff = UnixMicros(now.0.saturating_sub(retention));
        let files = self.files().await?;
        let versioned = files.iter().filter_map(|file| {
            let name = file.location.filename()?;
            let checkpoint = version_in(name, CHECKPOINT);
            let version = checkpoint.or_else(|| version_in(name, COMMIT))?;
            Some((file, version, checkpoint.is_some()))
        });
        let versioned: Vec<_> = versioned.collect();
        let is_old = |file: &ObjectMeta| UnixMicros::from(file.last_modified) <= cutoff;
        let young = versioned.iter().filter(|(file, ..)| !is_old(file));
        let kept = young.map(|(_, version, _)| *version).min().unwrap_or(replaced).min(replaced);
        let checkpoints = versioned
            .iter()
            .filter(|(_, version, is_checkpoint)| *is_checkpoint && *version <= kept);
        let Some(start) = checkpoints.map(|(_, version, _)| *version).max() else { return Ok(()) };
        let removed: Vec<_> = versioned
            .iter()
            .filter(|(file, version, _)| *version < start && is_old(file))
            .map(|(file, ..)| Ok(file.location.clone()))
            .collect();
        let mut results = self.store.delete_stream(stream::iter(removed).boxed());
        while let Some(result) = results.next().await {
            match result {
                // Another process may clean up at the same time.
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(self.store_error(source)),
            }
        }
        Ok(())
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

    fn damaged(&self, version: u64, reason: String) -> TableError {
        TableError::Damaged { table: self.table, version, reason }
    }

    fn invalid(&self, reason: String) -> TableError {
        TableError::Invalid { table: self.table, reason }
    }

    fn failed_checkpoint(&self, reason: String) -> TableError {
        TableError::Checkpoint { table: self.table, reason }
    }

    fn unsupported_checkpoints(&self) -> TableError {
        let reason =
            "it has only checkpoints in several files or of version 2, and not all commits"
                .to_owned();
        TableError::Unsupported { table: self.table, reason }
    }
}

fn path_of(version: u64, suffix: &str) -> Path {
    Path::from_iter([LOG, &format!("{version:0DIGITS$}{suffix}")])
}

/// The version in a file name of the log: 20 digits and `suffix`. Versions are 64-bit signed integers in
/// Delta.
fn version_in(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let is_version = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    let version: Option<i64> = is_version.then(|| digits.parse().ok()).flatten();
    u64::try_from(version?).ok()
}
