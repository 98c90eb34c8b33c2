//! Hash keys that persons keep across a login, for flags with experience continuity.
//!
//! They are in the metadata store because it is the only store that is durable before the answer
//! and not derived from the log: after an answered login the values survive a crash. Rows belong to
//! distinct ids, not to persons. So they follow their id through merges and splits, and can be
//! written before the first event of the id arrives.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::Write;

/// Most distinct ids of one person that are looked up, beside the one of the request. More ids mean
/// that many people share one id.
pub const IDS_MAX: usize = 100;

/// A hash key to store, unless the distinct id has one for the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHashKey {
    /// The project.
    pub project: ProjectId,
    /// The distinct id.
    pub distinct_id: String,
    /// The key of the flag.
    pub flag_key: String,
    /// The value that is hashed instead of the distinct id.
    pub hash_key: String,
}

/// Rows that wait for the next write, each with the sender that notifies its caller.
pub(super) type Waiting = Vec<(Vec<NewHashKey>, oneshot::Sender<()>)>;

impl Metadata {
    /// The stored hash keys of any of these distinct ids, by flag key. Of several for one flag the
    /// oldest is used. At most [`IDS_MAX`] + 1 ids are read.
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

    /// Stores hash keys; durable when this returns. Group commit: the first request that gets the
    /// gate writes the rows of all that wait, so that many logins cost one sync.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`]; [`MetadataError::NotKept`] if the write that contained these
    /// rows failed.
    pub async fn keep_hash_keys(&self, rows: Vec<NewHashKey>) -> Result<(), MetadataError> {
        let (sender, receiver) = oneshot::channel();
        self.shared.waiting.lock().push((rows, sender));
        let mut write = self.begin().await?;
        let batch = std::mem::take(&mut *self.shared.waiting.lock());
        if batch.is_empty() {
            // Another request has written the rows, or failed to.
            drop(write);
            return receiver.await.map_err(|_| MetadataError::NotKept);
        }
        insert(&mut write, &batch).await?;
        write.commit_unseen().await?;
        for (_, sender) in batch {
            // Fails if the caller hung up.
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
