//! Workers that execute parts of the queries of servers, by the bucket that they read: rows of the table `workers`.
//!
//! A worker raises the beat of its row while it runs, so that rows of workers that ended without notice can be told from
//! others and removed. Whether a worker answers is asked of the worker itself.

use crate::error::MetadataError;
use crate::{Metadata, sql};

/// Most workers of a bucket that are read.
const WORKERS_MAX: i64 = 1000;

/// The port of a worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerPort {
    /// Its URL.
    pub url: String,
    /// The only host on which the URL means this worker; empty if it does everywhere.
    pub host: String,
}

/// A worker as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredWorker {
    /// Its port for parts of queries.
    pub port: WorkerPort,
    /// How often it has registered.
    pub beat: i64,
}

impl Metadata {
    /// Registers a worker of a bucket, or raises its beat.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn register_worker(
        &self,
        bucket: &str,
        port: &WorkerPort,
    ) -> Result<(), MetadataError> {
        let register = "INSERT INTO workers (bucket, url, host, beat) VALUES ($1, $2, $3, 1) \
                        ON CONFLICT (bucket, url, host) DO UPDATE SET beat = workers.beat + 1";
        let register = sql::query(register).bind(bucket).bind(&*port.url).bind(&*port.host);
        register.execute(&mut self.shared.db.apart().await?).await?;
        Ok(())
    }

    /// The workers of a bucket, by their URLs, the first thousand.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn workers(&self, bucket: &str) -> Result<Vec<RegisteredWorker>, MetadataError> {
        let select =
            "SELECT url, host, beat FROM workers WHERE bucket = $1 ORDER BY url, host LIMIT $2";
        let select = sql::query_as(select).bind(bucket).bind(WORKERS_MAX);
        let rows: Vec<(String, String, i64)> =
            select.fetch_all(&mut self.shared.db.reader().await?).await?;
        let worker = |(url, host, beat)| RegisteredWorker { port: WorkerPort { url, host }, beat };
        Ok(rows.into_iter().map(worker).collect())
    }

    /// Removes a worker that ends.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn remove_worker(
        &self,
        bucket: &str,
        port: &WorkerPort,
    ) -> Result<(), MetadataError> {
        let remove = "DELETE FROM workers WHERE bucket = $1 AND url = $2 AND host = $3";
        let remove = sql::query(remove).bind(bucket).bind(&*port.url).bind(&*port.host);
        remove.execute(&mut self.shared.db.apart().await?).await?;
        Ok(())
    }

    /// Removes a worker if it still is as it was `seen`. Returns whether it was.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn forget_worker(
        &self,
        bucket: &str,
        seen: &RegisteredWorker,
    ) -> Result<bool, MetadataError> {
        let RegisteredWorker { port: WorkerPort { url, host }, beat } = seen;
        let forget =
            "DELETE FROM workers WHERE bucket = $1 AND url = $2 AND host = $3 AND beat = $4";
        let forget = sql::query(forget).bind(bucket).bind(&**url).bind(&**host).bind(*beat);
        Ok(forget.execute(&mut self.shared.db.apart().await?).await? > 0)
    }
}
