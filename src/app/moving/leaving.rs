//! Preconditions for leaving a log in a bucket for a data directory: [`Leaving`].
//!
//! The log stays behind, so everything in it has to be elsewhere: rows in the files of the tables, persons in the
//! identity store of the directory. That is the case only after the last server ended cleanly on this directory.
//! Sequences continue in the log on the disk, which begins after the records of both stores.
//!
//! No server may write meanwhile or afterwards: its events would be in the bucket alone. This process holds the lease
//! while it copies, and leaves a mark, which servers check before they begin.

use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;
use tokio::runtime::Handle;

use crate::directory::flushed;
use crate::error::OpenError;
use crate::lease::{Held, Taking};
use crate::moving::{MoveError, SHARD};
use crate::tables::events_spec;
use crate::{images, lease, tables};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::BucketUrl;
use weir_base::tasks::Tasks;
use weir_identity::limits::Limits;
use weir_storage::object_log;
use weir_storage::object_log::Pauses;
use weir_storage::object_log::writer::ObjectLog;
use weir_storage::tables::Tables;
use weir_storage::wal::{Elsewhere, Sequence};

/// What to do if records are in the log alone.
const FIRST: &str = "with the same settings, stop it in order (SIGTERM), and move then";

/// The right to leave a log in a bucket, held until [`Leaving::end`].
#[derive(Debug)]
pub(super) struct Leaving {
    url: BucketUrl,
    shard: Arc<dyn ObjectStore>,
    lease: Held,
    /// The task that renews the lease.
    tasks: Tasks,
    /// The last record in the tables and the identity store, which is the end of the log.
    end: Sequence,
}

impl Leaving {
    /// Checks that the log may be left for the data directory, which the caller has locked, and keeps servers from
    /// starting. `None` if there is no log in the bucket.
    pub(super) async fn begin(
        config: &Config,
        url: &BucketUrl,
        tables: &Tables,
        clock: &Clock,
    ) -> Result<Option<Self>, MoveError> {
        let Some(shard) = tables.shard() else { return Ok(None) };
        if !object_log::exists(&*shard).await.map_err(OpenError::from)? {
            return Ok(None);
        }
        let refused = |text: String| Err(MoveError::Refused(text));
        let Some(metadata) = &config.metadata.metadata_url else {
            return refused(format!(
                "the log is in {url}, too: set WEIR_METADATA_URL to the database of its servers, which tells whether one \
                 of them serves"
            ));
        };
        if lease::is_cluster(config, metadata, clock).await? {
            return refused(format!("{url} has several shards, and a data directory has one"));
        }
        let data_dir = config.storage.data_dir.as_path();
        let lease = match lease::take(&config.metadata, metadata, (url, SHARD), clock).await? {
            Taking::Taken(lease) => lease,
            Taking::Served => {
                return refused(format!(
                    "a server has {url}, or had it and did not end in order, so that acknowledged events may be in its \
                     log alone. Stop the standby and then the server, in order (SIGTERM); after a kill, also one of a \
                     move, start it again on {} first, {FIRST}",
                    data_dir.display()
                ));
            }
            Taking::Unknown => {
                return refused(format!(
                    "{metadata} knows of no server of {url}: set WEIR_METADATA_URL to the database of its servers"
                ));
            }
        };
        let tasks = Tasks::new(Handle::current());
        lease.keep(&tasks);
        let (url, end) = (url.clone(), Sequence(0));
        let mut leaving = Self { url, shard, lease, tasks, end };
        match leaving.check(config, tables, clock).await {
            Ok(end) => {
                leaving.end = end;
                Ok(Some(leaving))
            }
            Err(error) => {
                leaving.end().await;
                Err(error)
            }
        }
    }

    /// Checks that everything in the log is elsewhere. Returns its end.
    async fn check(
        &self,
        config: &Config,
        tables: &Tables,
        clock: &Clock,
    ) -> Result<Sequence, MoveError> {
        let (url, data_dir) = (&self.url, config.storage.data_dir.as_path());
        let (dir, refused) = (data_dir.display(), |text: String| Err(MoveError::Refused(text)));
        let (spec, name) = (events_spec(), tables.name(events_spec().name));
        let files = tables.writing(spec.name).map_err(OpenError::io(Path::new(&name)))?;
        let table = files.open_existing(spec, clock.clone()).await.map_err(OpenError::from)?;
        let Some(table) = table else {
            return refused(format!("there is no table in {name}"));
        };
        let Some(durable) = flushed(data_dir, &table.current()) else {
            return refused(format!(
                "node-id in {dir} does not name the node that has written {name}: restore it from a backup"
            ));
        };
        let limits = Limits::within(config.ingest.identity_cache_max_bytes.as_u64());
        let applied = Sequence(images::applied_in(data_dir, limits)?);
        let end = self.last(durable, applied).await?;
        if durable < end {
            return refused(format!(
                "records {} to {end} of the log in {url} are in no file yet: start the server on {dir} {FIRST}",
                durable.next()
            ));
        }
        if applied < end {
            return refused(format!(
                "the persons of {dir} are those of record {applied}, and the log in {url} ends with record {end}: {dir} \
                 is not that of the last server. Start the server on it, which brings the persons, {FIRST}"
            ));
        }
        Ok(end)
    }

    /// The last record of the log, given the last records in files and of persons.
    async fn last(&self, durable: Sequence, applied: Sequence) -> Result<Sequence, MoveError> {
        let elsewhere = Elsewhere { durable, seen: durable.max(applied) };
        let had_by_all = durable.min(applied);
        // A request that fails ends the command; the client of the store has retried it.
        let once = Pauses::new(|_| Box::pin(async { false }));
        let (shard, runtime) = (Arc::clone(&self.shard), Handle::current());
        let log = ObjectLog::read(shard, elsewhere, had_by_all, once, runtime).await;
        Ok(log.map_err(OpenError::from)?.last_appended())
    }

    /// Makes sure that no server starts on the bucket from now on, and that none has since [`Leaving::begin`]. Only the
    /// data directory's reference to the bucket remains to be removed.
    pub(super) async fn close_bucket(&self, data_dir: &Path) -> Result<(), MoveError> {
        let data_dir = std::path::absolute(data_dir).map_err(OpenError::io(data_dir))?;
        let marked = self.mark(&data_dir).await;
        if matches!(marked, Ok(true)) {
            return Ok(());
        }
        // Also after a failed put, which may have taken effect.
        if let Err(source) = tables::unmark_moved(&*self.shard).await {
            if let Err(error) = &marked {
                tracing::error!(error = error as &dyn std::error::Error, "the move has failed");
            }
            return Err(MoveError::Marked { mark: tables::mark_of(&self.url, SHARD), source });
        }
        marked?;
        let text = format!("a server has begun in {} meanwhile: stop it, and try again", self.url);
        Err(MoveError::Refused(text))
    }

    /// Puts the mark. Returns whether no server has started before that.
    async fn mark(&self, data_dir: &Path) -> Result<bool, MoveError> {
        tables::mark_moved(&*self.shard, data_dir).await?;
        // Any server that takes the lease from here on finds the mark.
        let is_held = self.lease.renew().await.map_err(OpenError::from)?;
        Ok(is_held && self.last(self.end, self.end).await? == self.end)
    }

    /// Releases the lease.
    pub(super) async fn end(self) {
        self.tasks.shutdown().begin();
        self.lease.give_back().await;
        self.lease.close().await;
    }
}
