//! Reader factory of Parquet files for scans: [`KeptFooters`] caches footers and page indexes across queries, so that a
//! query of many files reads rows only. Files are immutable, so cache entries never become stale; the cache of the
//! environment bounds its memory and evicts the least recently used entries.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

use crate::events::table::store_url;

/// Creates readers of files with cached footers and page indexes.
#[derive(Debug)]
pub(crate) struct KeptFooters {
    files: CachedParquetFileReaderFactory,
}

impl KeptFooters {
    /// Uses the cache of an environment in which the table's store is registered.
    ///
    /// # Errors
    ///
    /// It is not registered: a bug.
    pub(crate) fn of(environment: &RuntimeEnv) -> Result<Self> {
        let store = environment.object_store(store_url()?)?;
        let cache = environment.cache_manager.get_file_metadata_cache();
        Ok(Self { files: CachedParquetFileReaderFactory::new(store, cache) })
    }
}

impl ParquetFileReaderFactory for KeptFooters {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let file = self.files.create_reader(partition, file, size_hint, metrics)?;
        Ok(Box::new(Reader { file }))
    }
}

/// The reader of one file.
struct Reader {
    file: Box<dyn AsyncFileReader + Send>,
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        self.file.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        self.file.get_byte_ranges(ranges)
    }

    /// Always includes the page index, whatever the options: a scan would load it later only if it can prune by it, and
    /// what is loaded then is not cached.
    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        let options = options.cloned().unwrap_or_default();
        let options = options.with_page_index_policy(PageIndexPolicy::Optional);
        async move { self.file.get_metadata(Some(&options)).await }.boxed()
    }
}
