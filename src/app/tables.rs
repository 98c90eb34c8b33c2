//! Opens the tables of a data directory, in it or in a bucket; defines the schema and file layout of the events table;
//! and maintains a bucket's cache and probes while the server runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::directory::{Sharing, check_table_log, node_id, remove_directory, write_durably};
use crate::error::{BucketError, OpenError};
use crate::node::Process;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::{AwsVariables, BucketUrl, LogPlace};
use weir_base::config::storage::StorageConfig;
use weir_base::tasks::{Pause, TaskError, Tasks};
use weir_base::telemetry::metrics::Metrics;
use weir_disk::OsDisk;
use weir_event::dictionary;
use weir_event::id::ShardId;
use weir_event::schema::{
    BLOOM_COLUMNS, PARTITION_COLUMN, SORT_COLUMNS, STATISTICS_COLUMNS, UNIQUE_COLUMNS,
    WIDE_COLUMNS, column, events_schema,
};
use weir_event::time::{Month, partition_of};
use weir_query::persons::person_table::TableOf;
use weir_storage::cached::blocks::{BlockCache, Limits};
use weir_storage::delta::error::TableError;
use weir_storage::delta::{DeltaTable, TableSpec};
use weir_storage::parquet::Layout;
use weir_storage::probe::{PROBE_INTERVAL, probe, probe_in_use};
use weir_storage::scratch::Scratch;
use weir_storage::store::{Partitioning, Store};
use weir_storage::tables::Tables;
use weir_storage::wal::WalError;
use weir_storage::{object_log, remote};

/// File in a data directory that names the bucket of its tables.
const URL_FILE: &str = "storage-url";

/// Object of a shard in a bucket, beside its tables and its log: marks that they were moved to the data directory that
/// it names, so that no server starts here again.
const MOVED: &str = "moved";

/// Directory of cached blocks of data files in a data directory.
const CACHE_DIRECTORY: &str = "bucket-cache";

/// Time between checks of the disk space that the cache leaves free.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// Attempts to claim a table while puts of a former process arrive.
const CLAIMS_MAX: u32 = 5;

/// Purpose for which tables are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablesAccess {
    /// By the one server that writes them.
    Write,
    /// For reading, beside a server or without one.
    Read,
    /// For a replay in a copy of the data directory, which changes nothing elsewhere.
    Copy,
}

/// Finds the tables of the data directory. A bucket is probed before it is written to.
///
/// # Errors
///
/// The setting does not fit the data directory, or the bucket cannot be used.
pub fn open<'a>(
    config: &'a Config,
    shard: ShardId,
    access: TablesAccess,
    clock: &'a Clock,
    metrics: &'a Arc<Metrics>,
) -> LocalBoxFuture<'a, Result<Tables, OpenError>> {
    Box::pin(async move {
        let (storage, disk) = (&config.storage, Arc::new(OsDisk));
        let data_dir = storage.data_dir.as_path();
        let Some(url) = place(storage, access)? else {
            return in_directory(data_dir);
        };
        let tables = in_bucket(config, (&url, shard), access, clock, metrics).await?;
        match access {
            TablesAccess::Read => Ok(tables),
            TablesAccess::Copy => tables.copied(disk, data_dir).map_err(OpenError::io(data_dir)),
            TablesAccess::Write => {
                refuse_moved(&tables, (&url, shard)).await?;
                remember(data_dir, &url).map_err(OpenError::io(data_dir))?;
                Scratch::clear(data_dir).map_err(OpenError::io(data_dir))?;
                Ok(tables)
            }
        }
    })
}

/// The tables of a shard in a bucket, without reading the data directory. The bucket is probed before it is written to.
pub(super) async fn in_bucket(
    config: &Config,
    (url, shard): (&BucketUrl, ShardId),
    access: TablesAccess,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<Tables, OpenError> {
    let settings = &config.storage.bucket;
    let endpoint = settings.storage_endpoint.as_deref();
    let named = endpoint.map_or(url.to_string(), |endpoint| format!("{url} at {endpoint}"));
    let failed = |source: BucketError| OpenError::Bucket { url: named.clone(), source };
    let objects = remote::open(url, settings, &AwsVariables::of_process(), clock, metrics);
    let objects = objects.map_err(|error| failed(error.into()))?;
    let tables = Tables::in_bucket(objects, url.clone(), shard.prefix());
    if access == TablesAccess::Write
        && let Some(bucket) = tables.bucket()
    {
        probe(&bucket).await.map_err(|error| failed(error.into()))?;
    }
    Ok(tables)
}

/// The tables in a data directory, even if its `storage-url` names a bucket.
pub(super) fn in_directory(data_dir: &Path) -> Result<Tables, OpenError> {
    Tables::of_data_dir(Arc::new(OsDisk), data_dir).map_err(OpenError::io(data_dir))
}

/// The bucket that a data directory names as the place of its tables.
pub(super) fn known_bucket(data_dir: &Path) -> Result<Option<BucketUrl>, OpenError> {
    let path = data_dir.join(URL_FILE);
    let refused = |problem: String| OpenError::Incomplete { path: path.clone(), problem };
    match std::fs::read_to_string(&path) {
        Ok(text) => BucketUrl::parse(text.trim()).map(Some).map_err(refused),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::io(&path)(error)),
    }
}

/// The bucket of the tables of a data directory; `None` if they are in it.
fn place(storage: &StorageConfig, access: TablesAccess) -> Result<Option<BucketUrl>, OpenError> {
    let path = storage.data_dir.join(URL_FILE);
    let refused = |problem: String| OpenError::Incomplete { path: path.clone(), problem };
    let known = known_bucket(&storage.data_dir)?;
    let wanted = storage.bucket.storage_url.as_ref();
    match (known, wanted) {
        (Some(known), None) if access == TablesAccess::Write => Err(refused(format!(
            "says that the tables are in {known}: start with --storage-url {known}"
        ))),
        (Some(known), Some(wanted)) if known != *wanted => Err(refused(format!(
            "says that the tables are in {known}, and storage-url is {wanted}"
        ))),
        (Some(known), _) => Ok(Some(known)),
        // A server that has never run with this setting has written nothing elsewhere.
        (None, Some(wanted)) if access == TablesAccess::Write => {
            let log = storage.data_dir.join("tables/events/_delta_log");
            match log.is_dir() {
                true => Err(refused(format!(
                    "is missing: the tables are in {}, and storage-url names {wanted}. Move them there \
                     with weir move, take another data-dir, or start without storage-url",
                    storage.data_dir.join("tables").display()
                ))),
                false => Ok(Some(wanted.clone())),
            }
        }
        (None, _) => Ok(None),
    }
}

/// Records the bucket of the tables in the data directory.
pub(super) fn remember(data_dir: &Path, url: &BucketUrl) -> io::Result<()> {
    match data_dir.join(URL_FILE).exists() {
        true => Ok(()),
        false => write_durably(data_dir, URL_FILE, &format!("{url}\n")),
    }
}

/// Removes the bucket's URL: the tables are in the data directory now.
pub(super) fn forget_bucket(data_dir: &Path) -> io::Result<()> {
    std::fs::remove_file(data_dir.join(URL_FILE))?;
    std::fs::File::open(data_dir)?.sync_all()
}

/// Removes what is cached of a bucket.
pub(super) fn forget_cache(data_dir: &Path) -> io::Result<()> {
    Scratch::clear(data_dir)?;
    remove_directory(&data_dir.join(CACHE_DIRECTORY))
}

/// URL of the object that [`mark_moved`] puts, for messages.
pub(super) fn mark_of(url: &BucketUrl, shard: ShardId) -> String {
    format!("{url}/{}/{MOVED}", shard.prefix())
}

/// Marks in the bucket that its shard was moved to `data_dir`.
pub(super) async fn mark_moved(shard: &dyn ObjectStore, data_dir: &Path) -> Result<(), OpenError> {
    let text = data_dir.display().to_string();
    let put = shard.put(&ObjectPath::from(MOVED), text.into()).await;
    put.map(drop).map_err(|source| WalError::Store { action: "leave", source }.into())
}

/// Removes what [`mark_moved`] has put.
pub(super) async fn unmark_moved(shard: &dyn ObjectStore) -> Result<(), OpenError> {
    let removed = shard.delete(&ObjectPath::from(MOVED)).await;
    removed.map_err(|source| WalError::Store { action: "leave", source }.into())
}

/// Refuses a bucket whose shard was moved to a data directory: events would be in two places.
async fn refuse_moved(
    tables: &Tables,
    (url, shard): (&BucketUrl, ShardId),
) -> Result<(), OpenError> {
    let Some(objects) = tables.shard() else { return Ok(()) };
    let failed = |source| WalError::Store { action: "look for", source };
    let found = match objects.get(&ObjectPath::from(MOVED)).await {
        Ok(found) => found.bytes().await.map_err(failed)?,
        Err(object_store::Error::NotFound { .. }) => return Ok(()),
        Err(source) => return Err(failed(source).into()),
    };
    let data_dir = String::from_utf8_lossy(&found).into_owned();
    Err(OpenError::Moved { mark: mark_of(url, shard), data_dir })
}

/// Renames the tables in a data directory, once those in a bucket are the current ones. Returns the new path; `None` if
/// there are none.
pub(super) fn put_away(data_dir: &Path, clock: &Clock) -> io::Result<Option<String>> {
    let seconds = clock.now().0.div_euclid(1_000_000);
    let aside = data_dir.join(format!("tables.moved-{seconds}"));
    match std::fs::rename(data_dir.join("tables"), &aside) {
        Ok(()) => Ok(Some(aside.display().to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same tables with the cache of a process, or another one in the data directory.
pub(super) fn with_cache(process: &Process, tables: Tables) -> Result<Tables, OpenError> {
    let storage = &process.config.storage;
    let cache = match &process.cache {
        Some(cache) => Some(cache.clone()),
        None if tables.is_local() => None,
        None => cache(storage, &process.metrics).map_err(OpenError::io(&storage.data_dir))?,
    };
    Ok(tables.with_cache(cache))
}

/// Opens the cache of data files in the data directory; `None` if settings want none.
///
/// # Errors
///
/// An I/O error.
pub fn cache(storage: &StorageConfig, metrics: &Arc<Metrics>) -> io::Result<Option<BlockCache>> {
    let directory = storage.data_dir.join(CACHE_DIRECTORY);
    let max_bytes = storage.bucket.storage_cache_max_bytes.as_u64();
    if max_bytes == 0 {
        return remove_directory(&directory).map(|()| None);
    }
    // Twice as much as capture needs, so that the cache shrinks first.
    let free_min_bytes = storage.disk_free_min_bytes.as_u64().saturating_mul(2);
    let limits = Limits { max_bytes, free_min_bytes };
    BlockCache::open(&directory, Arc::new(OsDisk), limits, Arc::clone(metrics)).map(Some)
}

/// Lets the cache of a bucket leave space free on the disk.
pub(super) fn keep_cache(tasks: &Tasks, tables: &Tables) -> Result<(), TaskError> {
    let Some(cache) = tables.cache().cloned() else { return Ok(()) };
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_background_thread("bucket-cache", move || {
        while shutdown.pause_thread(ROOM_INTERVAL) == Pause::Elapsed {
            cache.make_room(0);
        }
    })
}

/// Starts the maintenance of a bucket: its cache leaves space free on the disk, and the bucket is probed regularly.
///
/// # Errors
///
/// The operating system refuses a thread.
pub(super) fn keep(
    tasks: &Tasks,
    tables: &Tables,
    metrics: &Arc<Metrics>,
) -> Result<(), TaskError> {
    keep_cache(tasks, tables)?;
    if let Some(objects) = tables.bucket() {
        let (shutdown, metrics) = (tasks.shutdown().clone(), Arc::clone(metrics));
        tasks.spawn("probe-bucket", async move {
            let mut pause = PROBE_INTERVAL;
            while shutdown.pause(pause).await == Pause::Elapsed {
                pause = probe_in_use(&objects, &metrics).await;
            }
        });
    }
    Ok(())
}

/// The files of events for a node that executes parts of queries: those of a bucket, cached in the data directory.
///
/// # Errors
///
/// The bucket cannot be used.
pub async fn of_worker(
    config: &Config,
    url: &BucketUrl,
    tasks: &Tasks,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let (data_dir, name) = (config.storage.data_dir.as_path(), events_spec().name);
    let tables =
        in_bucket(config, (url, ShardId::FIRST), TablesAccess::Read, clock, metrics).await?;
    let cache = cache(&config.storage, metrics).map_err(OpenError::io(data_dir))?;
    let tables = tables.with_cache(cache);
    keep_cache(tasks, &tables)?;
    let files = tables.reading(name).map_err(OpenError::io(data_dir))?.for_queries();
    Ok(Arc::clone(files.objects()))
}

/// The specification of the events table.
pub fn events_spec() -> TableSpec {
    let schema = dictionary::described(&dictionary::EVENTS, &events_schema());
    let name = dictionary::EVENTS.name;
    TableSpec { name, schema, partition_column: Some(PARTITION_COLUMN) }
}

/// The specifications of all tables, the events table first.
pub fn table_specs() -> [TableSpec; 3] {
    [events_spec(), TableOf::Persons.spec(), TableOf::DistinctIds.spec()]
}

/// The layout of the files of the events table.
pub fn events_layout() -> Layout {
    Layout {
        sort: SORT_COLUMNS.to_vec(),
        bloom: BLOOM_COLUMNS.to_vec(),
        statistics: STATISTICS_COLUMNS.to_vec(),
        unique: UNIQUE_COLUMNS.to_vec(),
        wide: WIDE_COLUMNS.to_vec(),
    }
}

/// The events table of a data directory.
///
/// # Errors
///
/// An engine cannot be opened; the message is for the operator.
pub(super) async fn events_store(
    config: &Config,
    shard: ShardId,
    tables: &Tables,
    clock: &Clock,
) -> Result<Store, OpenError> {
    let name = events_spec().name;
    let place = PathBuf::from(tables.name(name));
    // Also creates the directory, and syncs its name, which a directory that was created here would lack.
    let files = tables.writing(name).map_err(OpenError::io(&place))?.for_queries();
    check_table_log(&**files.objects(), &place).await?;
    let (data_dir, settings) = (&config.storage.data_dir, config.storage.clone());
    let sharing = match (tables.shard(), settings.bucket.storage_log) {
        (None, _) => Sharing::Never,
        (Some(_), LogPlace::Disk) => Sharing::ByMistake,
        (Some(shard), LogPlace::Bucket) if object_log::exists(&*shard).await? => Sharing::InTurn,
        (Some(_), LogPlace::Bucket) => Sharing::First,
    };
    for _ in 0..CLAIMS_MAX {
        let table = files.clone().open_or_create(events_spec(), clock.clone()).await?;
        let app_id = node_id(data_dir, shard, &table.current(), sharing)?;
        if tables.is_bucket() {
            match table.claim(&app_id).await {
                // A commit of a killed process has arrived since the table was read.
                Err(TableError::Fenced { .. }) => continue,
                claimed => claimed?,
            }
        }
        return Ok(store_of(table, app_id, settings, clock));
    }
    Err(TableError::Busy { table: name, attempts: CLAIMS_MAX }.into())
}

fn store_of(table: DeltaTable, app_id: String, settings: StorageConfig, clock: &Clock) -> Store {
    let partitioning = Partitioning {
        time_column: column::TIMESTAMP,
        key: |time| partition_of(time).0,
        name: |month| Month(month).to_string(),
    };
    Store::new(table, events_layout(), partitioning, app_id, settings, clock.clone())
}

/// The events table that another server writes, whose log is in the bucket; `None` if there is none yet.
pub(super) async fn followed_store(
    config: &Config,
    shard: ShardId,
    tables: &Tables,
    clock: &Clock,
) -> Result<Option<Store>, OpenError> {
    let name = events_spec().name;
    let place = PathBuf::from(tables.name(name));
    let files = tables.reading(name).map_err(OpenError::io(&place))?.for_queries();
    let Some(table) = files.open_existing(events_spec(), clock.clone()).await? else {
        return Ok(None);
    };
    let settings = config.storage.clone();
    let app_id = node_id(&settings.data_dir, shard, &table.current(), Sharing::InTurn)?;
    Ok(Some(store_of(table, app_id, settings, clock)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{TablesAccess, place, remember};
    use weir_base::config::bucket::BucketUrl;
    use weir_base::config::storage::StorageConfig;

    #[derive(Parser)]
    struct Settings {
        #[command(flatten)]
        storage: StorageConfig,
    }

    /// Goal: no server and no command opens empty tables elsewhere in place of a data directory's own.
    #[test]
    fn a_data_directory_keeps_to_its_place() {
        const A: &str = "s3://bucket/a";
        for (known, has_tables, wanted, access, expected) in [
            (None, false, None, TablesAccess::Write, Ok(None)),
            (None, true, None, TablesAccess::Write, Ok(None)),
            (None, false, Some(A), TablesAccess::Write, Ok(Some(A))),
            (None, true, Some(A), TablesAccess::Write, Err("start without storage-url")),
            (None, true, Some(A), TablesAccess::Read, Ok(None)),
            (Some(A), false, Some(A), TablesAccess::Write, Ok(Some(A))),
            (
                Some(A),
                false,
                None,
                TablesAccess::Write,
                Err("start with --storage-url s3://bucket/a"),
            ),
            (Some(A), false, None, TablesAccess::Read, Ok(Some(A))),
            (Some(A), false, None, TablesAccess::Copy, Ok(Some(A))),
            (
                Some(A),
                false,
                Some("s3://bucket/b"),
                TablesAccess::Write,
                Err("storage-url is s3://bucket/b"),
            ),
            (
                Some(A),
                false,
                Some("s3://bucket/b"),
                TablesAccess::Read,
                Err("storage-url is s3://bucket/b"),
            ),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let case = format!("{known:?}, {has_tables}, {wanted:?}, {access:?}");
            if let Some(known) = known {
                remember(directory.path(), &BucketUrl::parse(known).unwrap()).unwrap();
            }
            if has_tables {
                let log = directory.path().join("tables/events/_delta_log");
                std::fs::create_dir_all(log).unwrap();
            }
            let data_dir = directory.path().to_str().unwrap();
            let url = wanted.map(|url| ["--storage-url", url]);
            let flags =
                ["weir", "--data-dir", data_dir].into_iter().chain(url.into_iter().flatten());
            let found = place(&Settings::parse_from(flags).storage, access);
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.map(|url| url.to_string()).as_deref(), expected, "{case}");
                }
                (Err(error), Err(text)) => {
                    assert!(error.to_string().contains(text), "{case}: {error}")
                }
                (found, expected) => panic!("{case}: {found:?}, not {expected:?}"),
            }
        }
    }
}
