//! Hash keys that persons keep across a login, for flags with experience continuity.
//!
//! They live here, in the metadata store, because it is the one place that is durable at the answer
//! and not derived from the log: a login that was answered keeps its values after a crash. Rows hang
//! on distinct ids, not on persons, so that they follow their id through merges and splits and may
//! be written before the first event of the id arrives.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::Write;

/// Distinct ids of one person that are asked for, beside the one of the question; who has more is many
/// people under one id.
pub const IDS_MAX: usize = 100;

/// A hash key to be kept, unless the distinct id has one for the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHashKey {
    /// The project.
    pub project: ProjectId,
    /// Whose.
    pub distinct_id: String,
    /// For which flag.
    pub flag_key: String,
    /// What is hashed instead of the distinct id.
    pub hash_key: String,
}

/// Rows that wait for the next write, each with whom to tell.
pub(super) type Waiting = Vec<(Vec<NewHashKey>, oneshot::Sender<()>)>;

impl Metadata {
    /// The hash keys that were kept for any of these distinct ids, by flag key. Of several for one
    /// flag the oldest counts. At most [`IDS_MAX`] ids and one are looked at.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn hash_keys(
        &self,
        project: ProjectId,
        distinct_ids: &[String],
    ) -> Result<HashMap<String, String>, MetadataError> {
        let mut kept: HashMap<String, (UnixMicros, String)> = HashMap::new();
        let mut connection = self.shared.db.readers().acquire().await?;
        for distinct_id in distinct_ids.iter().take(IDS_MAX + 1) {
            let rows: Vec<(String, String, i64)> = sqlx::query_as(
                "SELECT flag_key, hash_key, created_at FROM hash_keys
                 WHERE project_id = $1 AND distinct_id = $2",
            )
            .bind(project.0)
            .bind(distinct_id)
            .fetch_all(&mut *connection)
            .await?;
            for (flag, hash_key, created_at) in rows {
                let row = (UnixMicros(created_at), hash_key);
                match kept.get(&flag) {
                    Some(older) if *older <= row => {}
                    _ => drop(kept.insert(flag, row)),
                }
            }
        }
        Ok(kept.into_iter().map(|(flag, (_, hash_key))| (flag, hash_key)).collect())
    }

    /// Keeps hash keys; durable when this returns. Requests that wait for the gate are written
    /// together by whoever gets it first, so that many logins cost one sync.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`]; [`MetadataError::NotKept`] if the write that took these rows
    /// along failed.
    pub async fn keep_hash_keys(&self, rows: Vec<NewHashKey>) -> Result<(), MetadataError> {
        let (sender, receiver) = oneshot::channel();
        self.shared.waiting.lock().push((rows, sender));
        let mut write = self.begin().await?;
        let batch = std::mem::take(&mut *self.shared.waiting.lock());
        if batch.is_empty() {
            // Somebody took the rows along.
            drop(write);
            return receiver.await.map_err(|_| MetadataError::NotKept);
        }
        insert(&mut write, &batch).await?;
        write.commit_unseen().await?;
        for (_, sender) in batch {
            // Whoever hung up does not want to know.
            let _ = sender.send(());
        }
        receiver.await.map_err(|_| MetadataError::NotKept)
    }
}

async fn insert(write: &mut Write, batch: &Waiting) -> Result<(), MetadataError> {
    let now = write.shared.clock.now();
    for row in batch.iter().flat_map(|(rows, _)| rows) {
        sqlx::query(
            "INSERT INTO hash_keys (project_id, distinct_id, flag_key, hash_key, created_at)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (project_id, distinct_id, flag_key) DO NOTHING",
        )
        .bind(row.project.0)
        .bind(&row.distinct_id)
        .bind(&row.flag_key)
        .bind(&row.hash_key)
        .bind(now.0)
        .execute(write.connection())
        .await?;
    }
    Ok(())
}
