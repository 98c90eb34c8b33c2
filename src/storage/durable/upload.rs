//! Multipart upload of the durable store: parts are written to a temporary file, which gets its name on
//! completion.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::FutureExt;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::durable::DurableStore;
use crate::durable::files::{Naming, Shared, Temporary, failed};

/// An unfinished upload. Invisible until [`MultipartUpload::complete`]; removed if dropped before.
#[derive(Debug)]
pub(super) struct Upload {
    store: DurableStore,
    location: Path,
    target: PathBuf,
    /// `None` once completed or aborted.
    temporary: Option<Arc<Temporary>>,
    /// File offset of the next part.
    offset: u64,
    /// Bytes of parts that are in the file.
    written: Arc<AtomicU64>,
}

impl Upload {
    pub(super) fn new(
        store: DurableStore,
        location: Path,
        target: PathBuf,
        temporary: Temporary,
    ) -> Self {
        let temporary = Some(Arc::new(temporary));
        Self { store, location, target, temporary, offset: 0, written: Arc::default() }
    }

    fn finished(&self) -> object_store::Error {
        failed(&self.location, io::Error::other("the upload is completed or aborted"))
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(temporary) = self.temporary.clone() else {
            let error = self.finished();
            return async move { Err(error) }.boxed();
        };
        let start = self.offset;
        let len = u64::try_from(data.content_length()).unwrap_or(u64::MAX);
        self.offset = start.saturating_add(len);
        let written = Arc::clone(&self.written);
        let location = self.location.clone();
        let store = self.store.clone();
        async move {
            let write = move || {
                let mut offset = start;
                for chunk in data.iter() {
                    offset = temporary.write(chunk, offset)?;
                }
                written.fetch_add(len, Ordering::AcqRel);
                Ok(())
            };
            store.blocking(move |_| write().map_err(|error| failed(&location, error))).await
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Some(temporary) = self.temporary.take() else { return Err(self.finished()) };
        let whole = self.written.load(Ordering::Acquire) == self.offset;
        let location = self.location.clone();
        let target = self.target.clone();
        let publish = self.store.blocking(move |shared| {
            // A part that failed or was not awaited would be a hole of zeros.
            let temporary = match Arc::try_unwrap(temporary) {
                Ok(temporary) if whole => temporary,
                Ok(Temporary { path, .. }) => return Err(incomplete(shared, &path, &location)),
                Err(still_written) => {
                    return Err(incomplete(shared, &still_written.path, &location));
                }
            };
            shared
                .publish(temporary, &target, Naming::Replace)
                .map_err(|error| failed(&location, error))
        });
        publish.await
    }

    async fn abort(&mut self) -> Result<()> {
        let Some(temporary) = self.temporary.take() else { return Err(self.finished()) };
        let location = self.location.clone();
        let remove = self.store.blocking(move |shared| {
            shared.disk.remove(&temporary.path).map_err(|error| failed(&location, error))
        });
        remove.await
    }
}

/// Removes the file of an upload with a missing part.
fn incomplete(shared: &Shared, path: &FilePath, location: &Path) -> object_store::Error {
    shared.discard(path);
    failed(location, io::Error::other("a part of the upload is missing"))
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(temporary) = self.temporary.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let disk = Arc::clone(&self.store.shared.disk);
        // Not awaited: if the removal fails, the next `recover` removes the file.
        drop(runtime.spawn_blocking(move || disk.remove(&temporary.path)));
    }
}
