//! Moves the tables of a stopped server between its data directory and a bucket: [`to_bucket`], [`to_directory`].
//!
//! Everything is copied and compared before the file `storage-url` changes, which tells a server where its tables are.
//! Until then the tables stay in place, and a second attempt continues the copy. The originals are not removed.
//!
//! A log in the bucket is not copied: [`leaving`] refuses to leave a log with records that are nowhere else.

mod leaving;

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures::future::LocalBoxFuture;

use crate::directory::{Sharing, node_id};
use crate::error::OpenError;
use crate::moving::leaving::Leaving;
use crate::tables::{TablesAccess, events_spec, table_specs};
use crate::{images, tables};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::BucketUrl;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;
use weir_storage::copy::{Copied, CopyError, copy_table};
use weir_storage::delta::TableVersion;
use weir_storage::object_log;
use weir_storage::tables::Tables;

/// The shard that is moved: a data directory has one.
const SHARD: ShardId = ShardId::FIRST;

/// Why tables cannot be moved. They are then still in their former place, but the mark of [`MoveError::Marked`] may
/// keep servers from continuing there: also after a failure to change the data directory, which comes after it.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The tables are not in the source, or the destination has other tables.
    #[error("{0}")]
    Refused(String),
    /// The data directory or the bucket cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A table cannot be copied.
    #[error("cannot copy {from} to {to}")]
    Copy {
        /// Where the table is.
        from: String,
        /// Where it should be.
        to: String,
        /// What is wrong.
        #[source]
        source: CopyError,
    },
    /// The mark that keeps servers from starting on a bucket that is left may still be there.
    #[error(
        "the move has failed, and {mark}, with which no server begins there, may have stayed: move again, or remove it to \
         go on there"
    )]
    Marked {
        /// The object.
        mark: String,
        /// Why it cannot be removed.
        #[source]
        source: OpenError,
    },
}

/// Result of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The files of all tables.
    pub copied: Copied,
    /// New path of the former files, which are not used any more; `None` if they were renamed before.
    pub former: Option<String>,
}

/// Moves the tables of the data directory, which the caller has locked, to the bucket.
pub fn to_bucket<'a>(
    config: &'a Config,
    url: &'a BucketUrl,
    clock: &'a Clock,
) -> LocalBoxFuture<'a, Result<Moved, MoveError>> {
    Box::pin(async move {
        let data_dir = config.storage.data_dir.as_path();
        match tables::known_bucket(data_dir)? {
            Some(known) if known == *url => {
                // A previous attempt ended after the move was complete.
                let former = tables::put_away(data_dir, clock).map_err(OpenError::io(data_dir))?;
                return Ok(Moved { copied: Copied::default(), former });
            }
            Some(known) => {
                let name = data_dir.display();
                let text = format!(
                    "the tables of {name} are in {known}; move them from there to {name} first"
                );
                return Err(MoveError::Refused(text));
            }
            None => {}
        }
        let from = tables::in_directory(data_dir)?;
        if !has_log(data_dir) {
            let text = format!("{} has no tables: start the server once first", data_dir.display());
            return Err(MoveError::Refused(text));
        }
        let metrics = Arc::new(Metrics::new());
        let to =
            tables::in_bucket(config, (url, SHARD), TablesAccess::Write, clock, &metrics).await?;
        if let Some(shard) = to.shard()
            && object_log::exists(&*shard).await.map_err(OpenError::from)?
        {
            let text = format!(
                "{url} has the log of servers that had their tables there: choose another prefix, or remove what is left of \
             them under {url}/{}",
                SHARD.prefix()
            );
            return Err(MoveError::Refused(text));
        }
        claim(&from, data_dir, clock).await?;
        let copied = copy(&from, &to, clock).await?;
        let done = tables::remember(data_dir, url).and_then(|()| tables::put_away(data_dir, clock));
        Ok(Moved { copied, former: done.map_err(OpenError::io(data_dir))? })
    })
}

/// Moves the tables of the data directory, which the caller has locked, from the bucket into it.
pub fn to_directory<'a>(
    config: &'a Config,
    url: &'a BucketUrl,
    clock: &'a Clock,
) -> LocalBoxFuture<'a, Result<Moved, MoveError>> {
    Box::pin(async move {
        let data_dir = config.storage.data_dir.as_path();
        let known = tables::known_bucket(data_dir)?;
        if known.as_ref() != Some(url) {
            let place = known.map_or_else(|| "in it".to_owned(), |known| format!("in {known}"));
            let text = format!("the tables of {} are {place}, not in {url}", data_dir.display());
            return Err(MoveError::Refused(text));
        }
        let metrics = Arc::new(Metrics::new());
        let from =
            tables::in_bucket(config, (url, SHARD), TablesAccess::Read, clock, &metrics).await?;
        let to = tables::in_directory(data_dir)?;
        let leaving = Leaving::begin(config, url, &from, clock).await?;
        let moved = leave(&from, &to, data_dir, leaving.as_ref(), clock).await;
        if let Some(leaving) = leaving {
            leaving.end().await;
        }
        Ok(Moved { copied: moved?, former: Some(url.to_string()) })
    })
}

async fn leave(
    from: &Tables,
    to: &Tables,
    data_dir: &Path,
    leaving: Option<&Leaving>,
    clock: &Clock,
) -> Result<Copied, MoveError> {
    let copied = copy(from, to, clock).await?;
    if let Some(leaving) = leaving {
        leaving.close_bucket(data_dir).await?;
    }
    tables::forget_bucket(data_dir).map_err(OpenError::io(data_dir))?;
    // The tables are moved: what is left of the caches only takes disk space.
    for forget in [tables::forget_cache, images::forget_cache] {
        if let Err(error) = forget(data_dir) {
            tracing::warn!(%error, "cannot remove what was cached of the bucket: it can be deleted");
        }
    }
    Ok(copied)
}

/// Registers the node of the data directory in its events table, if the node has flushed nothing yet. From this a
/// server that finds the table in the bucket, and would begin a log there, knows that events may be in a log on a disk.
async fn claim(tables: &Tables, data_dir: &Path, clock: &Clock) -> Result<(), OpenError> {
    let spec = events_spec();
    let files = tables.writing(spec.name).map_err(OpenError::io(data_dir))?;
    let Some(table) = files.open_existing(spec, clock.clone()).await? else { return Ok(()) };
    let version = table.current();
    let node = node_id(data_dir, SHARD, &version, Sharing::Never)?;
    if version.transaction(&node).is_none() {
        table.claim(&node).await?;
    }
    Ok(())
}

fn has_log(data_dir: &Path) -> bool {
    data_dir.join("tables/events/_delta_log").is_dir()
}

/// Copies all tables, and checks that the copies open as the same.
async fn copy(from: &Tables, to: &Tables, clock: &Clock) -> Result<Copied, MoveError> {
    let mut all = Copied::default();
    for spec in table_specs() {
        let name = spec.name;
        let failed = |source| MoveError::Copy { from: from.name(name), to: to.name(name), source };
        let io =
            |error: io::Error| MoveError::Open(OpenError::io(Path::new(&to.name(name)))(error));
        let (source, target) = (from.writing(name).map_err(io)?, to.writing(name).map_err(io)?);
        let copied = copy_table(source.objects(), target.objects()).await.map_err(failed)?;
        all.files += copied.files;
        all.bytes += copied.bytes;
        all.found += copied.found;
        let opened = [source, target].map(|files| files.open_existing(spec.clone(), clock.clone()));
        let [source, target] = opened;
        let source = source.await.map_err(OpenError::from)?.map(|table| table.current());
        let target = target.await.map_err(OpenError::from)?.map(|table| table.current());
        if source.is_none() && name == events_spec().name {
            return Err(MoveError::Refused(format!("there is no table in {}", from.name(name))));
        }
        let listed = |version: Arc<TableVersion>| (version.version, version.files.len());
        if source.map(listed) != target.map(listed) {
            let (from, to) = (from.name(name), to.name(name));
            let text = format!("the copy in {to} does not have the files of {from}");
            return Err(MoveError::Refused(text));
        }
    }
    Ok(all)
}
