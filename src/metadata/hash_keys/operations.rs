//! Operations on hash keys.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::MetadataError;
use crate::hash_keys::{IDS_MAX, NewHashKey, Waiting};
use crate::{Metadata, Write, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

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
        let mut connection = self.shared.db.reader().await?;
        for distinct_id in distinct_ids.iter().take(IDS_MAX + 1) {
            let rows: Vec<(String, String, i64)> = sql::query_as(
                "SELECT flag_key, hash_key, created_at FROM hash_keys
                 WHERE project_id = $1 AND distinct_id = $2",
            )
            .bind(project.0)
            .bind(distinct_id)
            .fetch_all(&mut connection)
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
    let base = Arc::clone(&write.base);
    // One transaction has rows of many requests: those of a project that was deleted meanwhile must not fail the others.
    let rows = batch.iter().flat_map(|(rows, _)| rows);
    for row in rows.filter(|row| !base.is_deleted(row.project)) {
        sql::query(
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
