//! Multipart uploads to a bucket: parts of one size that all stores take, however they arrive.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use futures::{FutureExt, TryFutureExt};
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::remote::Measure;

/// Bytes of every part but the last. S3 refuses less than 5 MiB, and some stores parts of different sizes.
const PART_BYTES: usize = 8 << 20;

/// An upload whose parts are measured.
#[derive(Debug)]
pub(super) struct Upload {
    inner: Box<dyn MultipartUpload>,
    measure: Arc<Measure>,
    /// The next part, as far as it has arrived.
    open: BytesMut,
}

impl Upload {
    pub(super) fn new(inner: Box<dyn MultipartUpload>, measure: Arc<Measure>) -> Self {
        Self { inner, measure, open: BytesMut::new() }
    }

    /// Sends the first `bytes` of what has arrived.
    fn send(&mut self, bytes: usize) -> UploadPart {
        let part = self.open.split_to(bytes).freeze();
        let sent = self.inner.put_part(part.into());
        let measure = Arc::clone(&self.measure);
        async move { measure.run("put_part", sent).await }.boxed()
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        for piece in data.iter() {
            self.open.extend_from_slice(piece);
        }
        let mut parts = Vec::new();
        while self.open.len() >= PART_BYTES {
            parts.push(self.send(PART_BYTES));
        }
        futures::future::try_join_all(parts).map_ok(|_| ()).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if !self.open.is_empty() {
            self.send(self.open.len()).await?;
        }
        let measure = Arc::clone(&self.measure);
        measure.run("put_multipart", self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
