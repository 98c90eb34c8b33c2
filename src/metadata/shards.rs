//! The shards of a cluster and wishes which node has one: rows of the table `shards`. Where a new project lives.
//!
//! Who has a shard is said by its lease alone (`leases`). A wish moves it: somebody wants a node to have it, that node
//! notes when it is ready, the holder gives the lease back then, and whoever has got it forgets the wish. Each step
//! names the node, so that a step of an earlier wish changes nothing of a later one.

use crate::entity::Stored;
use crate::error::MetadataError;
use crate::sql::{Bind, Builder};
use crate::violation::Violation;
use crate::{Metadata, Write, sql};
use weir_event::id::ShardId;

/// Most shards of a cluster.
pub const SHARDS_MAX: u16 = 256;

/// A shard as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRow {
    /// Its number.
    pub shard: ShardId,
    /// URL of the node that is to have it; empty if any may.
    pub wanted: String,
    /// URL of the node that has prepared to take it; empty if none has.
    pub ready: String,
}

impl Metadata {
    /// The shards, by number, at least the first.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn shards(&self) -> Result<Vec<ShardRow>, MetadataError> {
        let select = sql::query_as("SELECT shard, wanted, ready FROM shards ORDER BY shard");
        let rows: Vec<(i64, String, String)> =
            select.fetch_all(&mut self.shared.db.reader().await?).await?;
        if rows.is_empty() {
            return Ok(vec![ShardRow::default()]);
        }
        let shard =
            |(shard, wanted, ready)| Ok(ShardRow { shard: numbered(shard)?, wanted, ready });
        rows.into_iter().map(shard).collect()
    }

    /// The bucket with the shards, if any were added.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn bucket_of_shards(&self) -> Result<Option<String>, MetadataError> {
        let select = sql::query_scalar("SELECT bucket FROM shards WHERE bucket <> '' LIMIT 1");
        Ok(select.fetch_optional(&mut self.shared.db.reader().await?).await?)
    }

    /// Adds as many shards of a bucket, numbered on from those that there are. Returns how many there are then.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Rejected`] if there were more than [`SHARDS_MAX`], or those that there are are of another bucket;
    /// [`MetadataError::Database`].
    pub async fn add_shards(&self, bucket: &str, count: u16) -> Result<u16, MetadataError> {
        let mut write = self.begin().await?;
        let other =
            sql::query_scalar("SELECT bucket FROM shards WHERE bucket NOT IN ('', $1) LIMIT 1");
        let other: Option<String> = other.bind(bucket).fetch_optional(write.connection()).await?;
        if let Some(other) = other {
            return Err(Violation::general(format!("The shards are those of {other}.")).into());
        }
        let first =
            sql::query("INSERT INTO shards (shard) VALUES (0) ON CONFLICT (shard) DO NOTHING");
        first.execute(write.connection()).await?;
        let last = sql::query_scalar("SELECT MAX(shard) FROM shards");
        let last: i64 = last.fetch_one(write.connection()).await?;
        let next = numbered(last)?.0.saturating_add(1);
        let end = next.saturating_add(count);
        if end > SHARDS_MAX {
            let detail = format!("There are {next} shards, and at most {SHARDS_MAX} may be.");
            return Err(Violation::general(detail).into());
        }
        if count > 0 {
            let mut insert = Builder::new("INSERT INTO shards (shard) ");
            insert.push_values((next..end).map(|shard| [Bind::from(u32::from(shard))]));
            insert.build().execute(write.connection()).await?;
            let name = sql::query("UPDATE shards SET bucket = $1 WHERE bucket = ''").bind(bucket);
            name.execute(write.connection()).await?;
        }
        write.commit_unseen().await?;
        Ok(end)
    }

    /// Wants a node to have a shard, in place of an earlier wish. Returns whether there is such a shard.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn want_shard(&self, shard: ShardId, node_url: &str) -> Result<bool, MetadataError> {
        let want = match shard {
            // It need not have a row.
            ShardId::FIRST => sql::query(
                "INSERT INTO shards (shard, wanted) VALUES ($1, $2)
                 ON CONFLICT (shard) DO UPDATE SET wanted = excluded.wanted, ready = ''",
            ),
            _ => sql::query("UPDATE shards SET wanted = $2, ready = '' WHERE shard = $1"),
        };
        self.wish(want, shard, node_url).await
    }

    /// Notes that the node that is to have a shard is ready to take it. Returns whether it still is that node.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn note_ready(&self, shard: ShardId, node_url: &str) -> Result<bool, MetadataError> {
        let note = sql::query("UPDATE shards SET ready = $2 WHERE shard = $1 AND wanted = $2");
        self.wish(note, shard, node_url).await
    }

    /// Forgets the wish that a node should have a shard. Returns whether it still was that node.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn forget_wish(&self, shard: ShardId, node_url: &str) -> Result<bool, MetadataError> {
        let forget = "UPDATE shards SET wanted = '', ready = '' WHERE shard = $1 AND wanted = $2";
        self.wish(sql::query(forget), shard, node_url).await
    }

    /// Runs a statement about a shard and a node. Returns whether it changed a row.
    async fn wish(
        &self,
        wish: sql::Query,
        shard: ShardId,
        node_url: &str,
    ) -> Result<bool, MetadataError> {
        let wish = wish.bind(shard.store()).bind(node_url);
        Ok(wish.execute(&mut self.shared.db.apart().await?).await? > 0)
    }
}

impl Write {
    /// The shard that a new project is to live in: one with the fewest projects, of these the first. The transaction has
    /// the write lock, so that projects that are made at the same time do not all go to one.
    pub(super) async fn shard_for_project(&mut self) -> Result<ShardId, MetadataError> {
        let select = sql::query_scalar(
            "SELECT s.shard FROM shards s LEFT JOIN projects p ON p.shard = s.shard
             GROUP BY s.shard ORDER BY COUNT(p.id), s.shard LIMIT 1",
        );
        let found: Option<i64> = select.fetch_optional(self.connection()).await?;
        found.map_or(Ok(ShardId::FIRST), numbered)
    }
}

/// The shard with this number in a row.
fn numbered(number: i64) -> Result<ShardId, MetadataError> {
    let corrupt = |problem| MetadataError::Corrupt { table: "shards", problem };
    ShardId::restore(number).map_err(corrupt)
}
