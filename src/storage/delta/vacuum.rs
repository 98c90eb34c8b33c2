//! Vacuum: deletes data files that are no longer in the table, and orphans of failed commits.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use crate::delta::DeltaTable;
use crate::delta::commit::Writer;
use crate::delta::error::TableError;
use crate::delta::log::Log;
use crate::delta::state::State;
use crate::delta::version::{Damage, TOMBSTONE_RETENTION};
use weir_base::clock::UnixMicros;

/// Suffix of the files that a vacuum may delete.
const DATA_FILE_SUFFIX: &str = ".parquet";

/// The files that a vacuum deletes.
#[derive(Debug, Default)]
struct Doomed {
    /// Files that a commit has removed from the table.
    removed: Vec<Path>,
    /// Files that are in no commit.
    orphans: Vec<Path>,
}

impl DeltaTable {
    /// Deletes data files that were removed from the table at least `grace` ago, and orphans of that age,
    /// which a process that ended before its commit has left. Returns their paths. Files of versions that are
    /// in use in this process are left to a later vacuum.
    ///
    /// `grace` must exceed the duration of the longest query of other processes, which reads one version to
    /// its end, and the time from writing a file to committing it.
    ///
    /// # Errors
    ///
    /// [`TableError::Invalid`] if `grace` is longer than [`TOMBSTONE_RETENTION`]. After an error of the
    /// store some files may be deleted; the next vacuum deletes the rest.
    pub async fn vacuum(&self, grace: Duration) -> Result<Vec<String>, TableError> {
        let shared = &*self.shared;
        if grace > TOMBSTONE_RETENTION {
            let reason = "the grace is longer than the log keeps tombstones".to_owned();
            return Err(TableError::Invalid { table: shared.spec.name, reason });
        }
        // Listed first: files that are committed after the listing are live in the state that is read next.
        let files = data_files(&shared.log).await?;
        let mut writer = shared.writer.lock().await;
        shared.catch_up(&mut writer).await?;
        writer.state.forget_unread();
        let grace = i64::try_from(grace.as_micros()).unwrap_or(i64::MAX);
        let latest = UnixMicros(shared.clock.now().0.saturating_sub(grace));
        let doomed = doomed(&writer, &files, latest);
        // Under the lock, so that no commit of this handle adds one of these files meanwhile.
        let orphans = self.delete(doomed.orphans).await?;
        drop(writer);
        let removed = self.delete(doomed.removed).await?;
        self.forget(&files, &removed, latest).await;
        Ok(orphans.into_iter().chain(removed).map(|path| path.to_string()).collect())
    }

    /// The same without orphans: deletes only what the log of the table names, so nothing is listed. In a
    /// bucket, a list of all files is many requests.
    ///
    /// # Errors
    ///
    /// As of [`DeltaTable::vacuum`].
    pub async fn vacuum_removed(&self, grace: Duration) -> Result<Vec<String>, TableError> {
        let shared = &*self.shared;
        let grace = i64::try_from(grace.min(TOMBSTONE_RETENTION).as_micros()).unwrap_or(i64::MAX);
        let latest = UnixMicros(shared.clock.now().0.saturating_sub(grace));
        let mut writer = shared.writer.lock().await;
        shared.catch_up(&mut writer).await?;
        writer.state.forget_unread();
        let due = writer.state.tombstones.iter();
        let due = due.filter(|(path, removed_at)| {
            removed_before(**removed_at) <= latest && !writer.state.is_read(path)
        });
        let due: Vec<String> = due.map(|(path, _)| path.clone()).collect();
        drop(writer);
        let is_data = |path: &&String| path.ends_with(DATA_FILE_SUFFIX);
        let paths = due.iter().filter(is_data).filter_map(|path| Path::parse(path).ok());
        self.delete(paths.collect()).await?;
        let mut writer = shared.writer.lock().await;
        for path in &due {
            writer.state.tombstones.remove(path);
        }
        Ok(due)
    }

    async fn delete(&self, paths: Vec<Path>) -> Result<Vec<Path>, TableError> {
        let store = &self.shared.log.store;
        let mut results = store.delete_stream(stream::iter(paths.clone()).map(Ok).boxed());
        while let Some(result) = results.next().await {
            match result {
                // Another vacuum deleted it.
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => {
                    return Err(TableError::Store { table: self.shared.spec.name, source });
                }
            }
        }
        Ok(paths)
    }

    /// Drops tombstones of deleted files, so that the grace bounds their memory.
    async fn forget(&self, files: &[ObjectMeta], deleted: &[Path], latest: UnixMicros) {
        let deleted: hashbrown::HashSet<&str> = deleted.iter().map(Path::as_ref).collect();
        let kept: hashbrown::HashSet<&str> = files
            .iter()
            .map(|file| file.location.as_ref())
            .filter(|path| !deleted.contains(path))
            .collect();
        let mut writer = self.shared.writer.lock().await;
        writer.state.tombstones.retain(|path, removed_at| {
            removed_before(*removed_at) > latest || kept.contains(path.as_str())
        });
    }
}

/// The data files in the store, live or not. Directories that start with `_` or `.` do not belong to a table.
async fn data_files(log: &Log) -> Result<Vec<ObjectMeta>, TableError> {
    let list = async {
        let root = log.store.list_with_delimiter(None).await?;
        let mut files = root.objects;
        for directory in root.common_prefixes {
            let hidden = |name: &str| name.starts_with('_') || name.starts_with('.');
            if !directory.filename().is_some_and(hidden) {
                files.extend(log.store.list(Some(&directory)).try_collect::<Vec<_>>().await?);
            }
        }
        files.retain(|file| file.location.as_ref().ends_with(DATA_FILE_SUFFIX));
        Ok(files)
    };
    list.await.map_err(|source| TableError::Store { table: log.table, source })
}

/// Hides live files that are missing in the store from readers, which would fail on them.
pub(super) async fn hide_missing(
    log: &Log,
    state: &mut State,
) -> Result<Option<Damage>, TableError> {
    let there = data_files(log).await?;
    let there: hashbrown::HashSet<&str> = there.iter().map(|file| file.location.as_ref()).collect();
    let mut missing = Vec::new();
    for file in state.absent(|path| there.contains(path)) {
        // The listing contains only names that a vacuum considers.
        let path = Path::parse(&file.path).ok();
        let found = match &path {
            Some(path) => log.store.head(path).await.map(|_| ()),
            None => Ok(()),
        };
        match found {
            Ok(()) => {}
            Err(object_store::Error::NotFound { .. }) => missing.push(file),
            Err(source) => return Err(TableError::Store { table: log.table, source }),
        }
    }
    let Some(first) = missing.first() else { return Ok(None) };
    let rows: u64 = missing.iter().map(|file| file.rows).sum();
    let reason = format!(
        "{} live files with {rows} rows are missing, such as {}",
        missing.len(),
        first.path
    );
    state.hide(&missing);
    Ok(Some(Damage { first: state.version, last: state.version, reason }))
}

/// Chooses the files that no reader needs: not live, and removed or (if never committed) last written no
/// later than `latest`. Files that may belong to a lost commit are kept.
fn doomed(writer: &Writer, files: &[ObjectMeta], latest: UnixMicros) -> Doomed {
    let mut doomed = Doomed::default();
    let kept_until = writer.state.damaged_at();
    for file in files {
        let path = file.location.as_ref();
        if writer.state.live.contains_key(path) {
            continue;
        }
        match writer.state.tombstones.get(path) {
            Some(_) if writer.state.is_read(path) => {}
            Some(removed_at) if removed_before(*removed_at) <= latest => {
                doomed.removed.push(file.location.clone());
            }
            None if UnixMicros::from(file.last_modified) <= latest
                && kept_until.is_none_or(|kept| UnixMicros::from(file.last_modified) > kept) =>
            {
                doomed.orphans.push(file.location.clone());
            }
            _ => {}
        }
    }
    doomed
}

/// A time that is not before the removal: the log has milliseconds, rounded down.
fn removed_before(millis: i64) -> UnixMicros {
    UnixMicros(millis.saturating_mul(1_000).saturating_add(999))
}
