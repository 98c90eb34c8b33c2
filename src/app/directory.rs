//! Integrity checks of a data directory at start: find missing or damaged parts before an engine replaces
//! them by empty ones.
//!
//! | part | without it |
//! |---|---|
//! | `metadata.db`, unless PostgreSQL has the metadata | with events: no start; [`MetadataPolicy::Recreate`] creates a
//! store |
//! | `metadata.db-wal` | its last changes are lost, which is logged and counted |
//! | `tables/events/_delta_log` | with data files: no start, since a new table would remove them |
//! | `node-id` | restored from the table's transactions; no start if they contain several nodes |
//! | data files | a background check logs them; queries that need them fail |
//!
//! The log and the identity store have their own checks.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use futures::future::LocalBoxFuture;
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use uuid::Uuid;

use crate::error::OpenError;
use crate::sqlite_wal::{beside, lost_changes};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::metadata::{MetadataConfig, MetadataUrl};
use weir_base::telemetry::metrics::{Metrics, PlaceLabels};
use weir_event::id::ShardId;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::postgres::MetadataAccess;
use weir_storage::delta::error::TableError;
use weir_storage::delta::{DataFile, TableVersion};
use weir_storage::store::Store;
use weir_storage::wal::Sequence;

/// Prefix of node names in the tables' transactions.
const NODE_PREFIX: &str = "node/";

/// Most files that one log line names.
const NAMED_MAX: usize = 20;

/// Reaction to a missing or damaged metadata store in a directory with events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataPolicy {
    /// Refuse to start.
    #[default]
    Require,
    /// Rename the files of the damaged store, and start with an empty one.
    Recreate,
}

/// The metadata store of a data directory, for a command: the PostgreSQL database, if one is configured, or the file,
/// which must exist.
///
/// # Errors
///
/// It cannot be opened; the message is for the operator.
pub fn metadata_of<'a>(
    data_dir: &'a Path,
    settings: &'a MetadataConfig,
    access: MetadataAccess,
    clock: Clock,
) -> LocalBoxFuture<'a, Result<Metadata, OpenError>> {
    Box::pin(async move {
        if let Some(url) = &settings.metadata_url {
            return Ok(Metadata::connect(settings, url, clock, access).await?);
        }
        let path = data_dir.join("metadata.db");
        if !path.is_file() {
            let problem = "is missing: start the server once first, restore the file from a backup, or set \
             WEIR_METADATA_URL if the metadata are in PostgreSQL";
            return Err(OpenError::Incomplete { path, problem: problem.to_owned() });
        }
        Ok(Metadata::open(&path, clock).await?)
    })
}

/// Moves the metadata of a data directory, which the caller has locked, from its file to an empty PostgreSQL
/// database. Returns the number of rows, and the new path of the file. After an interruption between the two it may be
/// called again: it finds the database filled from this file.
///
/// # Errors
///
/// The file cannot be read, or the database not be filled; nothing has changed then. Or the file cannot be
/// renamed.
pub fn move_metadata<'a>(
    data_dir: &'a Path,
    settings: &'a MetadataConfig,
    url: &'a MetadataUrl,
    clock: Clock,
) -> LocalBoxFuture<'a, Result<(u64, PathBuf), OpenError>> {
    Box::pin(async move {
        let path = data_dir.join("metadata.db");
        if is_empty(&path)? {
            return Err(OpenError::Incomplete { path, problem: "is missing or empty".to_owned() });
        }
        let target = Metadata::connect(settings, url, clock.clone(), MetadataAccess::Write).await?;
        let source = Metadata::open(&path, clock.clone()).await?;
        let taken = target.take_over(&source).await;
        source.close().await;
        target.close().await;
        let rows = taken?;
        let aside = set_aside(&path, "moved", &clock).map_err(OpenError::io(&path))?;
        Ok((rows, aside))
    })
}

/// How the metadata store of a data directory is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataStart {
    pub(super) access: MetadataAccess,
    pub(super) policy: MetadataPolicy,
    /// Whether the directory was in use before.
    pub(super) has_events: bool,
}

impl MetadataStart {
    /// Opens the store.
    pub(super) async fn open(
        self,
        config: &Config,
        clock: &Clock,
        metrics: &Metrics,
    ) -> Result<Metadata, OpenError> {
        let Self { access, policy, has_events } = self;
        let (settings, path) = (&config.metadata, config.storage.data_dir.join("metadata.db"));
        if let Some(url) = &settings.metadata_url {
            let metadata = Metadata::connect(settings, url, clock.clone(), access).await?;
            let is_unused = metadata.snapshot().projects().len() == 0;
            return match self.check_beside(&path, url, is_unused) {
                Ok(()) => {
                    if access == MetadataAccess::Write {
                        warn_of(&path, url);
                    }
                    Ok(metadata)
                }
                Err(error) => {
                    metadata.close().await;
                    Err(error)
                }
            };
        }
        if let Some(lost) = lost_changes(&path).map_err(OpenError::io(&path))? {
            metrics.corruptions.get_or_create(&PlaceLabels { place: "metadata" }).inc();
            // The relative path: a command reads a copy, which is removed afterwards.
            tracing::error!(
                "metadata.db-wal: {lost}: changes of projects, keys and flags since the last checkpoint into metadata.db; \
                 restore both files from a backup of the same time"
            );
        }
        let opened = match has_events && is_empty(&path)? {
            true => Err(lost(&path, "is missing or empty")),
            false => opened(&path, clock, has_events).await,
        };
        match (opened, policy) {
            (Ok(_), MetadataPolicy::Recreate) if has_events => Err(OpenError::Incomplete {
                path,
                problem: "can be read, so it is not recreated: start without --recreate-metadata"
                    .to_owned(),
            }),
            (
                Err(
                    OpenError::Incomplete { .. }
                    | OpenError::Metadata(MetadataError::Damaged { .. }),
                ),
                MetadataPolicy::Recreate,
            ) => {
                set_aside(&path, "replaced", clock).map_err(OpenError::io(&path))?;
                Ok(Metadata::open(&path, clock.clone()).await?)
            }
            (opened, _) => opened,
        }
    }

    /// Whether a PostgreSQL database without a project may be initialized: not if the data directory has metadata in a
    /// file, which have to be moved, nor if it has events, whose projects the database would have to contain.
    fn check_beside(
        self,
        path: &Path,
        url: &MetadataUrl,
        is_unused: bool,
    ) -> Result<(), OpenError> {
        let problem = match (is_unused, self.policy) {
            (true, MetadataPolicy::Require) if !is_empty(path)? => format!(
                "has metadata, and {url} has none. Move them there with weir migrate --metadata-url, or move \
                 the file away"
            ),
            (true, MetadataPolicy::Require) if self.has_events => format!(
                "is not there, and {url} has no project, but the directory has events. Correct --metadata-url \
                 (WEIR_METADATA_URL), restore the database from a backup, or start with --recreate-metadata: \
                 a new store gets new keys and a project with id 1"
            ),
            (false, MetadataPolicy::Recreate) if self.has_events => {
                format!(
                    "is not used, and {url} can be read, so it is not recreated: start without --recreate-metadata"
                )
            }
            _ => return Ok(()),
        };
        Err(OpenError::Incomplete { path: path.to_path_buf(), problem })
    }
}

/// Logs a warning for each questionable use of PostgreSQL that nevertheless works.
fn warn_of(path: &Path, url: &MetadataUrl) {
    if Metadata::is_unprotected(url) {
        tracing::warn!(
            "the metadata are in PostgreSQL at {url}, which is another machine, and nothing demands that the connection \
             is encrypted: who listens sees hashes of keys and passwords, who is between changes what is read. Add \
             sslmode=verify-full to --metadata-url (WEIR_METADATA_URL)"
        );
    }
    if is_empty(path).is_ok_and(|is_empty| !is_empty) {
        tracing::warn!(
            "{} is not used, since the metadata are in PostgreSQL, but a start without --metadata-url would use it: \
             if weir migrate was interrupted, run it again, or else move the file away",
            path.display()
        );
    }
}

/// Opens the store, which must contain a project if there are events.
async fn opened(path: &Path, clock: &Clock, has_events: bool) -> Result<Metadata, OpenError> {
    let metadata = Metadata::open(path, clock.clone()).await?;
    if has_events && metadata.snapshot().projects().len() == 0 {
        metadata.close().await;
        // The case after `metadata.db-wal` with all transactions was lost.
        return Err(lost(path, "has no project"));
    }
    Ok(metadata)
}

fn lost(path: &Path, how: &str) -> OpenError {
    OpenError::Incomplete {
        path: path.to_path_buf(),
        problem: format!(
            "{how}, and the directory has events. Restore it from a backup together with \
             metadata.db-wal, or start with --recreate-metadata: a new store gets new keys and a \
             project with id 1, and events of other ids are back when projects with these ids are \
             made; flags, cohorts, users and settings are lost"
        ),
    }
}

fn is_empty(path: &Path) -> Result<bool, OpenError> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(file.len() == 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(OpenError::io(path)(error)),
    }
}

/// Renames the files of a store to `.<why>-<time>`, so that an operator can find them. Returns the new path.
fn set_aside(path: &Path, why: &str, clock: &Clock) -> io::Result<PathBuf> {
    let seconds = clock.now().0.div_euclid(1_000_000);
    for suffix in ["", "-wal", "-shm"] {
        let aside = beside(path, &format!(".{why}-{seconds}{suffix}"));
        match std::fs::rename(beside(path, suffix), aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    Ok(beside(path, &format!(".{why}-{seconds}")))
}

/// Fails if there are data files but no table log that contains them.
pub(super) async fn check_table_log(
    objects: &dyn ObjectStore,
    table: &Path,
) -> Result<(), OpenError> {
    let failed = |source| TableError::Store { table: "events", source };
    let log = ObjectPath::from("_delta_log");
    if objects.list(Some(&log)).try_next().await.map_err(failed)?.is_some() {
        return Ok(());
    }
    let mut all = objects.list(None);
    while let Some(file) = all.try_next().await.map_err(failed)? {
        if file.location.extension() == Some("parquet") {
            let problem = format!(
                "is missing or empty, and there are data files without it, such as {}. Restore it from \
                 a backup, or move {} away to start with an empty table",
                table.join(file.location.as_ref()).display(),
                table.display()
            );
            return Err(OpenError::Incomplete { path: table.join("_delta_log"), problem });
        }
    }
    Ok(())
}

/// Whether other servers may write a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// It is in the data directory, which one process has locked.
    Never,
    /// It is in a bucket, and another data directory may use the same one by mistake, which has to be detected.
    ByMistake,
    /// It is in a bucket with the log, and servers write it one after another.
    InTurn,
    /// As [`Sharing::InTurn`], before there is a log: a server with its log on disk may have written the table.
    First,
}

/// The name of this node in the transactions of the tables, generated once per data directory. Under
/// another name than that of its commits, the node would flush the events of its log a second time.
///
/// Servers that have their log in the bucket, one after another, have one name.
pub(super) fn node_id(
    data_dir: &Path,
    shard: ShardId,
    table: &TableVersion,
    sharing: Sharing,
) -> Result<String, OpenError> {
    let path = data_dir.join("node-id");
    let of_shard = format!("{NODE_PREFIX}shard-{shard}");
    let known: Vec<&str> =
        table.applications().filter(|name| name.starts_with(NODE_PREFIX)).collect();
    let refused = |problem| OpenError::Incomplete { path: path.clone(), problem };
    // Read as bytes: a damaged file may be no valid UTF-8.
    let read = match std::fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(OpenError::io(&path)(error)),
    };
    let id = match (read.is_empty(), known.as_slice()) {
        (false, []) => return Ok(read),
        (false, known) if known.contains(&read.as_str()) => return Ok(read),
        (false, known) => {
            return Err(refused(format!(
                "contains {read:?}, but the commits of the events table are by {}: write that name into \
                 it, or restore it from a backup; under another name, events of the log would be \
                 stored twice",
                known.join(", ")
            )));
        }
        (true, []) if matches!(sharing, Sharing::InTurn | Sharing::First) => of_shard,
        (true, []) => format!("{NODE_PREFIX}{}", Uuid::new_v4()),
        (true, known) if sharing == Sharing::ByMistake => {
            return Err(refused(format!(
                "is missing or empty, and the events table in the bucket is that of {}, perhaps of another \
                 data directory: choose another prefix in storage-url. If it is of this directory, or that \
                 is lost for good, write the name into it",
                known.join(", ")
            )));
        }
        // Acknowledged events may be in that log alone, and this server would continue without them. All servers with
        // their log in the bucket have the same name; one that ended before it began its log has flushed nothing. (A
        // log on a disk has this name only if a server was started with storage-log disk afterwards.)
        (true, known)
            if sharing == Sharing::First
                && known.iter().any(|name| {
                    *name != of_shard || table.transaction(name).is_some_and(|last| last > 0)
                }) =>
        {
            return Err(refused(format!(
                "is missing or empty, and the events table in the bucket is that of {}, whose log is on a disk: start \
                 the server with that data directory first, with storage-log disk, stop it in order, and start it \
                 with storage-log bucket. If that disk is lost for good, write the name into this file",
                known.join(", ")
            )));
        }
        (true, [only]) => {
            if sharing == Sharing::Never {
                tracing::warn!(
                    node = only,
                    "node-id was lost and is restored from the events table"
                );
            }
            (*only).to_owned()
        }
        (true, several) => {
            return Err(refused(format!(
                "is missing or empty, and several nodes have written the events table: write the \
                 right one of {} into it",
                several.join(", ")
            )));
        }
    };
    write_durably(data_dir, "node-id", &id).map_err(OpenError::io(&path))?;
    Ok(id)
}

/// The last log record of this node that is in files. `None` if the rules of [`node_id`] do not determine
/// the node.
pub fn flushed(data_dir: &Path, table: &TableVersion) -> Option<Sequence> {
    let known: Vec<&str> =
        table.applications().filter(|name| name.starts_with(NODE_PREFIX)).collect();
    let read = std::fs::read(data_dir.join("node-id")).unwrap_or_default();
    let read = String::from_utf8_lossy(&read);
    let node = match (read.trim(), known.as_slice()) {
        (_, []) => return Some(Sequence(0)),
        ("", [only]) => only,
        (read, _) => read,
    };
    u64::try_from(table.transaction(node)?).ok().map(Sequence)
}

/// Removes a directory with everything in it, if it is there.
pub(super) fn remove_directory(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a small file of the data directory, whole or not at all.
pub(super) fn write_durably(data_dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let draft = data_dir.join(format!("{name}.tmp"));
    std::fs::write(&draft, text)?;
    std::fs::File::open(&draft)?.sync_all()?;
    std::fs::rename(&draft, data_dir.join(name))?;
    std::fs::File::open(data_dir)?.sync_all()
}

/// Checks that the live files exist with the size that the table contains. Missing or cut files are logged
/// and counted; queries that need none of them are answered.
///
/// The directory is listed, which takes one request to a bucket for a thousand files.
pub(super) async fn check_files(store: Store, metrics: Arc<Metrics>) {
    let table = store.table();
    let version = table.current();
    let mut lost = match unlike_listed(&*table.store(), &version.files).await {
        Ok(lost) => lost,
        Err(error) => {
            tracing::warn!(%error, "the files of the events table cannot be listed, so none is checked");
            return;
        }
    };
    // A merge may have replaced it in the meantime.
    let current = table.current();
    lost.retain(|(file, _)| current.files.iter().any(|live| live.path == file.path));
    if lost.is_empty() {
        return;
    }
    let corruptions = metrics.corruptions.get_or_create(&PlaceLabels { place: "table" });
    corruptions.inc_by(u64::try_from(lost.len()).unwrap_or(u64::MAX));
    drop(corruptions);
    let rows: u64 = lost.iter().map(|(file, _)| file.rows).sum();
    let named = |(file, problem): &(&Arc<DataFile>, String)| {
        format!("{}/{}: {problem}", table.spec().name, file.path)
    };
    let names: Vec<String> = lost.iter().take(NAMED_MAX).map(named).collect();
    tracing::error!(
        files = lost.len(),
        rows,
        names = names.join("; "),
        "data files of the events table are missing or cut: queries that need them fail, all others \
         are answered; restore the files from a backup"
    );
}

/// The files of a table that are missing in its directory, or have another size there, with the problem.
async fn unlike_listed<'f>(
    objects: &dyn ObjectStore,
    files: &'f [Arc<DataFile>],
) -> object_store::Result<Vec<(&'f Arc<DataFile>, String)>> {
    let keyed = |file: &'f Arc<DataFile>| (ObjectPath::from(file.path.as_str()), file);
    let mut unseen: HashMap<ObjectPath, &Arc<DataFile>> = files.iter().map(keyed).collect();
    let mut wrong = Vec::new();
    let mut listed = objects.list(None);
    while let Some(found) = listed.try_next().await? {
        if let Some(file) = unseen.remove(&found.location)
            && found.size != file.size_bytes
        {
            wrong.push((file, format!("{} bytes instead of {}", found.size, file.size_bytes)));
        }
    }
    wrong.extend(unseen.into_values().map(|file| (file, "missing".to_owned())));
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::directory::{Sharing, check_table_log, node_id, set_aside};
    use crate::error::OpenError;
    use crate::tables::events_spec;
    use weir_base::clock::Clock;
    use weir_disk::OsDisk;
    use weir_event::id::ShardId;
    use weir_storage::delta::{Edit, EditKind};
    use weir_storage::tables::Tables;

    #[tokio::test]
    async fn data_files_without_a_log_are_refused() {
        // Files in the directory of the table, and whether the start is refused.
        let cases: [(&[&str], bool); 6] = [
            (&[], false),
            (&["_delta_log/"], false),
            (&["_delta_log/", "month=2026-01/"], false),
            (&["_delta_log/00000000000000000000.json", "month=2026-01/a.parquet"], false),
            (&["month=2026-01/a.parquet"], true),
            (&["_delta_log/.tmp-1", "month=2026-01/", "month=2026-02/a.parquet"], true),
        ];
        for (names, is_refused) in cases {
            let directory = tempfile::tempdir().unwrap();
            let table = directory.path().join("events");
            for name in names {
                let path = table.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                match name.ends_with('/') {
                    true => std::fs::create_dir_all(path).unwrap(),
                    false => std::fs::write(path, "x").unwrap(),
                }
            }
            let root = directory.path().to_path_buf();
            let files = Tables::in_directory(Arc::new(OsDisk), root).writing("events").unwrap();
            let checked = check_table_log(&**files.objects(), &table).await;
            assert_eq!(checked.is_err(), is_refused, "{names:?}: {checked:?}");
            if let Err(error) = checked {
                assert!(
                    matches!(&error, OpenError::Incomplete { path, .. } if path.ends_with("_delta_log"))
                );
                assert!(error.to_string().contains("a.parquet"), "{error}");
            }
        }
    }

    /// Goal: no server begins a log in the bucket while acknowledged events may be in a log on another disk.
    #[tokio::test]
    async fn a_log_in_a_bucket_begins_under_its_own_name() {
        const DISK: &str = "node/1";
        const SHARD: &str = "node/shard-0000";
        type Claims = &'static [(&'static str, i64)];
        // Nodes that have committed to the table, with their last record; the sharing; the expected name of a server
        // without one.
        let cases: [(Claims, Sharing, Option<&str>); 8] = [
            (&[], Sharing::First, Some(SHARD)),
            (&[(SHARD, 0)], Sharing::First, Some(SHARD)),
            (&[(SHARD, 7)], Sharing::First, None),
            (&[(DISK, 0)], Sharing::First, None),
            (&[(DISK, 7)], Sharing::First, None),
            (&[(DISK, 7)], Sharing::InTurn, Some(DISK)),
            (&[(SHARD, 7)], Sharing::InTurn, Some(SHARD)),
            (&[(SHARD, 0), (DISK, 0)], Sharing::First, None),
        ];
        for (claims, sharing, expected) in cases {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().join("tables");
            let files = Tables::in_directory(Arc::new(OsDisk), root).writing("events").unwrap();
            let table = files.open_or_create(events_spec(), Clock::system()).await.unwrap();
            for (name, last) in claims {
                table.claim(name).await.unwrap();
                if *last > 0 {
                    let transaction = Some((name.to_string(), *last));
                    let (add, remove) = (Vec::new(), Vec::new());
                    let edit = Edit { add, remove, transaction, kind: EditKind::Append };
                    table.commit(edit).await.unwrap();
                }
            }
            let named = node_id(directory.path(), ShardId::FIRST, &table.current(), sharing);
            match (&named, expected) {
                (Ok(name), Some(expected)) => assert_eq!(name, expected, "{claims:?}, {sharing:?}"),
                (Err(error), None) => {
                    assert!(error.to_string().contains("whose log is on a disk"), "{error}");
                }
                _ => panic!("{claims:?}, {sharing:?}: {named:?}"),
            }
            assert_eq!(directory.path().join("node-id").exists(), named.is_ok());
        }
    }

    #[test]
    fn the_files_of_a_store_stay_together() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata.db");
        for name in ["metadata.db", "metadata.db-wal"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        set_aside(&path, "replaced", &Clock::system()).unwrap();
        let names = std::fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let [store, wal] = names.as_slice() else { panic!("{names:?}") };
        assert!(store.starts_with("metadata.db.replaced-"), "{store}");
        assert_eq!(*wal, format!("{store}-wal"), "SQLite finds the one by the name of the other");
    }
}
