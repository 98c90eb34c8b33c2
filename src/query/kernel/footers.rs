//! Reader factory of Parquet files for scans: [`KeptFooters`] caches footers and page indexes across queries, so that a
//! query of many files reads rows only. Files are immutable, so cache entries never become stale; the cache of the
//! environment bounds its memory and evicts the least recently used entries.
//!
//! Footers are used and cached without the Arrow schema that files have for the sake of its descriptions: a scan would
//! cast every column whose field differs in them from the field of the table.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, CachedParquetMetaData,
};
use datafusion::error::Result;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectMeta;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::file::metadata::{
    FileMetaData, KeyValue, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder,
};

use crate::events::table::store_url;

/// Creates readers of files with cached footers and page indexes.
#[derive(Debug)]
pub(crate) struct KeptFooters {
    files: CachedParquetFileReaderFactory,
    cache: Arc<FileMetadataCache>,
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
        Ok(Self { files: CachedParquetFileReaderFactory::new(store, Arc::clone(&cache)), cache })
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
        let (object, cache) = (file.object_meta.clone(), Arc::clone(&self.cache));
        let file = self.files.create_reader(partition, file, size_hint, metrics)?;
        Ok(Box::new(Reader { file, object, cache }))
    }
}

/// The reader of one file.
struct Reader {
    file: Box<dyn AsyncFileReader + Send>,
    object: ObjectMeta,
    cache: Arc<FileMetadataCache>,
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
        async move {
            let footer = self.file.get_metadata(Some(&options)).await?;
            let Some(plain) = without_arrow_schema(&footer) else { return Ok(footer) };
            let plain = Arc::new(plain);
            let cached = Arc::new(CachedParquetMetaData::new(Arc::clone(&plain)));
            let entry = CachedFileMetadataEntry::new(self.object.clone(), cached);
            self.cache.put(&self.object.location, entry);
            Ok(plain)
        }
        .boxed()
    }
}

/// The footer without an Arrow schema; `None` if it has none.
fn without_arrow_schema(footer: &ParquetMetaData) -> Option<ParquetMetaData> {
    let head = footer.file_metadata();
    let is_kept = |pair: &&KeyValue| pair.key != ARROW_SCHEMA_META_KEY;
    let pairs = head.key_value_metadata()?;
    let kept: Vec<KeyValue> = pairs.iter().filter(is_kept).cloned().collect();
    if kept.len() == pairs.len() {
        return None;
    }
    let head = FileMetaData::new(
        head.version(),
        head.num_rows(),
        head.created_by().map(str::to_owned),
        Some(kept).filter(|kept| !kept.is_empty()),
        head.schema_descr_ptr(),
        head.column_orders().cloned(),
    );
    let plain = ParquetMetaDataBuilder::new(head)
        .set_row_groups(footer.row_groups().to_vec())
        .set_column_index(footer.column_index().cloned())
        .set_offset_index(footer.offset_index().cloned());
    Some(plain.build())
}
