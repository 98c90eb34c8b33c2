//! Commit protocol of a table handle: writes commits to the log, applies commits of other handles, writes
//! checkpoints.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parking_lot::RwLock;
use url::Url;
use uuid::Uuid;

use crate::delta::actions::Action;
use crate::delta::error::TableError;
use crate::delta::log::{Log, Put};
use crate::delta::state::State;
use crate::delta::version::{
    CHECKPOINT_INTERVAL, Damage, DataFile, EditKind, TableSpec, TableVersion, report,
};
use weir_base::clock::{Clock, UnixMicros};

/// Time without reading the log after which the next commits may have been cleaned up: the handle then
/// reads the newest checkpoint first.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Concurrent HEAD requests for added files.
const CONCURRENT_HEADS: usize = 16;

pub(super) struct Shared {
    pub(super) spec: TableSpec,
    pub(super) location: Url,
    pub(super) clock: Clock,
    pub(super) log: Log,
    /// Damage that was found when the table was opened.
    pub(super) damage: Vec<Damage>,
    /// Prefix of the ids of this handle's commits, which distinguishes them from other handles' commits.
    pub(super) id: Uuid,
    /// Replaced as a whole; locked only for an `Arc` clone.
    pub(super) current: RwLock<Arc<TableVersion>>,
    /// One commit, refresh or vacuum at a time.
    pub(super) writer: tokio::sync::Mutex<Writer>,
}

pub(super) struct Writer {
    pub(super) state: State,
    /// Last time at which the state was known to be the newest. Wall clock, because it continues while the
    /// machine sleeps.
    pub(super) seen_at: UnixMicros,
    /// Version of the newest checkpoint that this handle knows of.
    pub(super) checkpoint: u64,
    /// Number of commits that this handle has attempted.
    pub(super) attempts: u64,
}

/// Description of a commit in the log, in the terms of other engines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) mode: Option<&'static str>,
    /// Whether it is a blind append, which depends on nothing in the table.
    pub(super) blind: bool,
}

pub(super) fn operation(kind: EditKind) -> Operation {
    match kind {
        EditKind::Append => Operation { name: "WRITE", mode: Some("Append"), blind: true },
        EditKind::Compact => Operation { name: "OPTIMIZE", mode: None, blind: false },
        EditKind::Replace => Operation { name: "UPDATE", mode: None, blind: false },
        EditKind::Overwrite => Operation { name: "WRITE", mode: Some("Overwrite"), blind: false },
    }
}

impl Shared {
    /// Writes the next version. `false` if another committer has written it; its commits are then in the
    /// state.
    pub(super) async fn put(
        &self,
        writer: &mut Writer,
        operation: Operation,
        actions: Vec<Action>,
        now: UnixMicros,
    ) -> Result<bool, TableError> {
        let version = writer.state.version.saturating_add(1);
        writer.attempts = writer.attempts.saturating_add(1);
        let id = format!("{}-{}", self.id.simple(), writer.attempts);
        let bytes = self.log.encode(version, operation, id.clone(), &actions, now)?;
        // Decoded before it is written: the state is then the same as every reader's, and an unreadable
        // commit is never written.
        let change = writer.state.read(version, &bytes)?;
        match self.log.put(version, bytes).await? {
            Put::Done => {
                writer.state.apply(change, Origin::Us);
                writer.seen_at = now;
                self.publish(writer);
                Ok(true)
            }
            Put::Taken => {
                // The store may have retried a request whose first attempt had succeeded.
                let applied = self.catch_up(writer).await;
                let applied = applied.map_err(|error| in_doubt(version, error))?;
                Ok(applied.contains(&id))
            }
        }
    }

    /// Applies commits that are not in the state yet. Returns the ids of commits of this program.
    pub(super) async fn catch_up(&self, writer: &mut Writer) -> Result<Vec<String>, TableError> {
        if self.is_idle(writer) {
            self.skip_to_checkpoint(writer).await?;
        }
        let applied = self.apply_next(writer).await;
        // Also after an error: commits that are in the state by then are not applied again.
        self.publish_if_behind(writer);
        if applied.is_ok() {
            writer.seen_at = self.clock.now();
        }
        applied
    }

    async fn apply_next(&self, writer: &mut Writer) -> Result<Vec<String>, TableError> {
        let mut ids = Vec::new();
        loop {
            let version = writer.state.version.saturating_add(1);
            let Some(bytes) = self.log.read(version).await? else { return Ok(ids) };
            let change = writer.state.read(version, &bytes)?;
            let ours = change.id.as_ref().is_some_and(|id| self.is_ours(id));
            ids.extend(change.id.clone());
            writer.state.apply(change, if ours { Origin::Us } else { Origin::Others });
        }
    }

    /// Reloads the table if its newest checkpoint is ahead of the state: the commits in between may be
    /// removed.
    pub(super) async fn skip_to_checkpoint(&self, writer: &mut Writer) -> Result<(), TableError> {
        let Some(checkpoint) = self.log.last_checkpoint().await? else { return Ok(()) };
        writer.checkpoint = writer.checkpoint.max(checkpoint);
        if checkpoint <= writer.state.version {
            return Ok(());
        }
        let damaged = || TableError::Damaged {
            table: self.spec.name,
            version: checkpoint,
            reason: "the log is gone".to_owned(),
        };
        let loaded = self.log.load(&self.spec, self.clock.now()).await?.ok_or_else(damaged)?;
        report(self.spec.name, &loaded.damage);
        writer.state.replace_by(loaded.state);
        self.publish(writer);
        Ok(())
    }

    pub(super) fn is_idle(&self, writer: &Writer) -> bool {
        let now = self.clock.now();
        now < writer.seen_at || now.since(writer.seen_at) > IDLE_MAX
    }

    pub(super) fn is_ours(&self, id: &str) -> bool {
        id.starts_with(&self.id.simple().to_string())
    }

    /// Publishes the state to readers if they have an older one, as after a dropped call of
    /// [`Self::catch_up`].
    pub(super) fn publish_if_behind(&self, writer: &Writer) {
        if self.current.read().version != writer.state.version {
            self.publish(writer);
        }
    }

    pub(super) fn publish(&self, writer: &Writer) {
        let version = Arc::new(writer.state.table_version());
        *self.current.write() = version;
    }

    /// Fails if a file is missing or has another length: every later query would fail on it.
    pub(super) async fn check_files(&self, files: &[DataFile]) -> Result<(), TableError> {
        let checks = files.iter().map(|file| async move {
            let invalid = |reason| TableError::Invalid { table: self.spec.name, reason };
            let path =
                Path::parse(&file.path).map_err(|error| invalid(format!("bad path: {error}")))?;
            match self.log.store.head(&path).await {
                Ok(meta) if meta.size == file.size_bytes => Ok(()),
                Ok(meta) => {
                    Err(invalid(format!("{path} has {} bytes, not {}", meta.size, file.size_bytes)))
                }
                Err(object_store::Error::NotFound { .. }) => {
                    Err(invalid(format!("{path} is not there")))
                }
                Err(source) => Err(TableError::Store { table: self.spec.name, source }),
            }
        });
        let checks: Vec<_> = checks.collect();
        stream::iter(checks).buffer_unordered(CONCURRENT_HEADS).try_collect().await
    }

    /// Writes a checkpoint if there are enough commits since the last one, and removes log files that it
    /// replaces. The commit is already in the table, so a failure is only logged; the next commit tries
    /// again.
    pub(super) async fn checkpoint_if_due(&self, writer: &mut Writer) {
        let due = |writer: &Writer| {
            writer.state.version >= writer.checkpoint.saturating_add(CHECKPOINT_INTERVAL)
        };
        if !due(writer) {
            return;
        }
        // Another committer may have written it.
        if let Ok(Some(version)) = self.log.last_checkpoint().await {
            writer.checkpoint = writer.checkpoint.max(version);
        }
        if !due(writer) {
            return;
        }
        if let Err(error) = self.checkpoint(writer).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                table = self.spec.name,
                error,
                "cannot write a checkpoint of the table; the next commit tries again"
            );
        }
    }

    /// Writes a checkpoint of the state, and removes log files that it replaces.
    pub(super) async fn checkpoint(&self, writer: &mut Writer) -> Result<(), TableError> {
        let (version, now) = (writer.state.version, self.clock.now());
        self.log.write_checkpoint(version, writer.state.checkpoint(now)).await?;
        writer.checkpoint = version;
        self.log.clean_up(version, now).await
    }
}

/// The error of a put whose version exists, perhaps written by itself, while the log cannot be read.
fn in_doubt(version: u64, error: TableError) -> TableError {
    match error {
        TableError::Store { table, source } => TableError::InDoubt { table, version, source },
        other => other,
    }
}

/// The committer of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// This handle.
    Us,
    /// Any other handle.
    Others,
}
