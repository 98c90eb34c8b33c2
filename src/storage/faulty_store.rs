//! In-memory object store with fault injection for tests: [`FaultyStore`] fails puts and reads of commits,
//! and measures the largest read.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::CopyOptions;
use object_store::GetOptions;
use object_store::GetResult;
use object_store::ListResult;
use object_store::MultipartUpload;
use object_store::ObjectMeta;
use object_store::ObjectStore;
use object_store::PutMultipartOptions;
use object_store::PutOptions;
use object_store::PutPayload;
use object_store::PutResult;
use object_store::memory::InMemory;
use object_store::path::Path;
use parking_lot::Mutex;

/// Fault of the next put of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The put succeeds, and its response is lost.
    AnswerLost,
    /// The put succeeds, its response is lost, and the client retries by itself, as for S3.
    DoneTwice,
    /// The put fails without an effect.
    NotDone,
}

/// The store.
#[derive(Debug, Default)]
pub(super) struct FaultyStore {
    inner: InMemory,
    /// Fault of the next put of a commit.
    pub(super) fault: Mutex<Option<Fault>>,
    /// Number of commits that can be read before one read fails, once; `None` for no failure.
    pub(super) reads_until_failure: Mutex<Option<u32>>,
    most_read: AtomicU64,
}

impl FaultyStore {
    /// The largest number of bytes in one read.
    pub(super) fn most_read(&self) -> u64 {
        self.most_read.load(Ordering::Relaxed)
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FaultyStore")
    }
}

fn lost() -> object_store::Error {
    object_store::Error::Generic { store: "FaultyStore", source: "timeout".into() }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let is_commit = location.as_ref().ends_with(".json");
        let fault = if is_commit { self.fault.lock().take() } else { None };
        if fault == Some(Fault::NotDone) {
            return Err(lost());
        }
        let put = self.inner.put_opts(location, payload.clone(), options.clone()).await;
        match fault {
            Some(Fault::AnswerLost) => put.and(Err(lost())),
            Some(_) => self.inner.put_opts(location, payload, options).await,
            None => put,
        }
    }
    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }
    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        if location.as_ref().ends_with(".json") {
            let mut left = self.reads_until_failure.lock();
            if let Some(reads) = left.take() {
                *left = Some(reads.checked_sub(1).ok_or_else(lost)?);
            }
        }
        let is_head = options.head;
        let got = self.inner.get_opts(location, options).await?;
        let bytes = if is_head { 0 } else { got.range.end - got.range.start };
        self.most_read.fetch_max(bytes, Ordering::Relaxed);
        Ok(got)
    }
    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        let most = ranges.iter().map(|range| range.end - range.start).max().unwrap_or(0);
        self.most_read.fetch_max(most, Ordering::Relaxed);
        self.inner.get_ranges(location, ranges).await
    }
    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
