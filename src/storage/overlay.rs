//! A store over another that stays unchanged: [`OverlayStore`] reads both and writes to the upper one alone.
//! Commands that read a data directory without a server replay its log into such a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

/// The store.
#[derive(Clone, Debug)]
pub struct OverlayStore {
    /// Only read.
    base: Arc<dyn ObjectStore>,
    /// What was written; its objects hide those of the base.
    upper: Arc<dyn ObjectStore>,
}

impl OverlayStore {
    /// `upper` over `base`.
    pub fn new(base: Arc<dyn ObjectStore>, upper: Arc<dyn ObjectStore>) -> Self {
        Self { base, upper }
    }
}

impl fmt::Display for OverlayStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OverlayStore({} over {})", self.upper, self.base)
    }
}

#[async_trait]
impl ObjectStore for OverlayStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if options.mode == PutMode::Create {
            match self.base.head(location).await {
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    let source = "it is in the store below".into();
                    return Err(Error::AlreadyExists { path: location.to_string(), source });
                }
            }
        }
        self.upper.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.upper.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.upper.get_opts(location, options.clone()).await {
            Err(Error::NotFound { .. }) => self.base.get_opts(location, options).await,
            got => got,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.upper.get_ranges(location, ranges).await {
            Err(Error::NotFound { .. }) => self.base.get_ranges(location, ranges).await,
            got => got,
        }
    }

    /// Objects of the base stay.
    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let upper = Arc::clone(&self.upper);
        let deleted = locations.then(move |location| {
            let upper = Arc::clone(&upper);
            async move {
                let location = location?;
                match upper.delete(&location).await {
                    Ok(()) | Err(Error::NotFound { .. }) => Ok(location),
                    Err(error) => Err(error),
                }
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (upper, base) = (self.upper.list(prefix), self.base.list(prefix));
        let both = async move {
            let mut objects = BTreeMap::new();
            for listed in [base, upper] {
                let listed: Vec<ObjectMeta> = listed.try_collect().await?;
                objects.extend(listed.into_iter().map(|object| (object.location.clone(), object)));
            }
            Ok::<_, Error>(stream::iter(objects.into_values().map(Ok)))
        };
        stream::once(both).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (mut objects, mut prefixes) = (BTreeMap::new(), BTreeSet::new());
        for store in [&self.base, &self.upper] {
            let listed = store.list_with_delimiter(prefix).await?;
            let named = listed.objects.into_iter();
            objects.extend(named.map(|object| (object.location.clone(), object)));
            prefixes.extend(listed.common_prefixes);
        }
        Ok(ListResult {
            common_prefixes: prefixes.into_iter().collect(),
            objects: objects.into_values().collect(),
        })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        let (operation, implementer) = ("copy".to_owned(), "OverlayStore".to_owned());
        Err(Error::NotImplemented { operation, implementer })
    }
}
