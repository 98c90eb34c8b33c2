//! The nodes of a cluster, which serve its shards: rows of the table `nodes`.
//!
//! A node raises the beat of its row while it runs, as workers do (`workers`): by the beat alone others see that it is
//! alive, on their own clocks. Which shards a node has is said by the leases of these.

use crate::error::MetadataError;
use crate::{Metadata, sql};

/// Most nodes that are read.
const NODES_MAX: i64 = 1000;

/// A node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// URL at which other nodes reach it.
    pub url: String,
    /// Version of its program.
    pub build: String,
    /// How often it has registered.
    pub beat: i64,
    /// Whether it is to give its shards away, and to get none.
    pub is_draining: bool,
    /// Most shards that it may have.
    pub shards_max: usize,
}

impl Metadata {
    /// Registers a node, or raises its beat. Whether it drains stays as it is: only who said so takes it back.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn register_node(
        &self,
        url: &str,
        build: &str,
        shards_max: usize,
    ) -> Result<(), MetadataError> {
        let register = "INSERT INTO nodes (url, build, shards_max, beat) VALUES ($1, $2, $3, 1) \
                        ON CONFLICT (url) DO UPDATE SET build = excluded.build, \
                        shards_max = excluded.shards_max, beat = nodes.beat + 1";
        let shards_max = i64::try_from(shards_max).unwrap_or(i64::MAX);
        let register = sql::query(register).bind(url).bind(build).bind(shards_max);
        register.execute(&mut self.shared.db.apart().await?).await?;
        Ok(())
    }

    /// The nodes, by their URLs, the first thousand.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, MetadataError> {
        let select =
            "SELECT url, build, beat, is_draining, shards_max FROM nodes ORDER BY url LIMIT $1";
        let select = sql::query_as(select).bind(NODES_MAX);
        let rows: Vec<(String, String, i64, bool, i64)> =
            select.fetch_all(&mut self.shared.db.reader().await?).await?;
        let node = |(url, build, beat, is_draining, shards_max)| {
            let shards_max = usize::try_from(shards_max).unwrap_or_default();
            NodeRow { url, build, beat, is_draining, shards_max }
        };
        Ok(rows.into_iter().map(node).collect())
    }

    /// Removes a node that ends, unless it drains: it takes no shards when it is back, until an operator lets it.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn remove_node(&self, url: &str) -> Result<(), MetadataError> {
        let remove = sql::query("DELETE FROM nodes WHERE url = $1 AND NOT is_draining").bind(url);
        remove.execute(&mut self.shared.db.apart().await?).await?;
        Ok(())
    }

    /// Removes a node if its beat still is as it was `seen`. Returns whether it was.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn forget_node(&self, seen: &NodeRow) -> Result<bool, MetadataError> {
        let forget = sql::query("DELETE FROM nodes WHERE url = $1 AND beat = $2");
        let forget = forget.bind(&*seen.url).bind(seen.beat);
        Ok(forget.execute(&mut self.shared.db.apart().await?).await? > 0)
    }

    /// Says whether a node is to give its shards away. Returns whether there is such a node.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn drain_node(&self, url: &str, is_draining: bool) -> Result<bool, MetadataError> {
        let drain = sql::query("UPDATE nodes SET is_draining = $2 WHERE url = $1");
        let drain = drain.bind(url).bind(is_draining);
        Ok(drain.execute(&mut self.shared.db.apart().await?).await? > 0)
    }
}
