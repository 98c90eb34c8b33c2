//! An object store of which each request waits until a scheduler lets it through: [`Gated`].

use std::fmt;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// What a scheduler lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The request is done and answered.
    Done,
    /// It is done, and its answer is lost. Of puts only.
    AnswerLost,
    /// It is on its way, and its sender gives up. Of puts only.
    Late,
}

/// A put on its way.
#[derive(Clone, Debug)]
pub(super) struct Late {
    pub(super) path: Path,
    pub(super) payload: PutPayload,
}

#[derive(Debug, Default)]
struct Gate {
    /// What waits: whether it is a put.
    waiting: Option<bool>,
    pass: Option<Pass>,
    /// Everything that the user of the store has learned.
    history: u64,
    late: Vec<Late>,
}

/// The store of one user; others have gates of their own before the same objects.
#[derive(Clone, Debug)]
pub(super) struct Gated {
    pub(super) objects: Arc<InMemory>,
    gate: Arc<Mutex<Gate>>,
    /// Whether reads wait, too. What they find hardly depends on when they are done: an object never changes.
    pub(super) waits_for_reads: bool,
    /// Whether the second list of each claim is forgotten, and the first one given again.
    pub(super) lists_once: bool,
    listed: Arc<Mutex<Vec<ObjectMeta>>>,
}

impl Gated {
    pub(super) fn new(objects: Arc<InMemory>) -> Self {
        let (gate, listed) = Default::default();
        Self { objects, gate, waits_for_reads: false, lists_once: false, listed }
    }

    /// What waits at the gate: whether it is a put; `None` if nothing does.
    pub(super) fn waiting(&self) -> Option<bool> {
        self.gate.lock().waiting
    }

    /// Lets what waits through.
    pub(super) fn pass(&self, pass: Pass) {
        self.gate.lock().pass = Some(pass);
    }

    /// The puts that are on their way since the last call.
    pub(super) fn late(&self) -> Vec<Late> {
        std::mem::take(&mut self.gate.lock().late)
    }

    /// A digest of everything that the user has learned: with the same digest it is in the same state.
    pub(super) fn history(&self) -> u64 {
        self.gate.lock().history
    }

    /// Adds to what the user has learned.
    pub(super) fn learn(&self, what: impl Hash) {
        let mut gate = self.gate.lock();
        let mut hasher = DefaultHasher::new();
        (gate.history, what).hash(&mut hasher);
        gate.history = hasher.finish();
    }

    /// Waits until the scheduler lets something through.
    pub(super) async fn enter(&self, is_put: bool) -> Pass {
        self.gate.lock().waiting = Some(is_put);
        poll_fn(|_| {
            let mut gate = self.gate.lock();
            match gate.pass.take() {
                Some(pass) => {
                    gate.waiting = None;
                    Poll::Ready(pass)
                }
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl fmt::Display for Gated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Gated")
    }
}

fn lost() -> Error {
    Error::Generic { store: "Gated", source: "no answer".into() }
}

#[async_trait]
impl ObjectStore for Gated {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        assert_eq!(options.mode, PutMode::Create, "only new objects are put");
        let pass = self.enter(true).await;
        if pass == Pass::Late {
            self.gate.lock().late.push(Late { path: location.clone(), payload });
            self.learn("late");
            return Err(lost());
        }
        let put = self.objects.put_opts(location, payload, options).await;
        if pass == Pass::AnswerLost {
            self.learn("lost");
            return Err(lost());
        }
        self.learn((location.as_ref(), put.is_ok()));
        put
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented { operation: "multipart".into(), implementer: "Gated".into() })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.waits_for_reads {
            self.enter(false).await;
        }
        let got = self.objects.get_opts(location, options.clone()).await;
        let bytes: Option<Bytes> = match self.objects.get_opts(location, options).await {
            Ok(got) => Some(got.bytes().await?),
            Err(_) => None,
        };
        self.learn((location.as_ref(), bytes.as_deref()));
        got
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let own = self.clone();
        // One after another, so that a writer may stop between two of them.
        let deleted = locations.then(move |location| {
            let own = own.clone();
            async move {
                let location = location?;
                own.enter(false).await;
                let one = stream::iter([Ok(location)]).boxed();
                let deleted = own.objects.delete_stream(one).try_next().await;
                own.learn(deleted.is_ok());
                deleted.map(Option::unwrap_or_default)
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (own, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            own.enter(false).await;
            let mut listed = own.objects.list(prefix.as_ref()).collect::<Vec<_>>().await;
            listed.sort_by_key(|meta| meta.as_ref().map(|meta| meta.location.clone()).ok());
            let mut listed: Vec<ObjectMeta> = listed.into_iter().flatten().collect();
            if own.lists_once {
                let mut former = own.listed.lock();
                match former.is_empty() {
                    true => former.clone_from(&listed),
                    false => listed = std::mem::take(&mut *former),
                }
            }
            own.learn(listed.iter().map(|meta| meta.location.to_string()).collect::<Vec<_>>());
            stream::iter(listed.into_iter().map(Ok))
        };
        listed.into_stream().flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(Error::NotImplemented { operation: "list".into(), implementer: "Gated".into() })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".into(), implementer: "Gated".into() })
    }
}
