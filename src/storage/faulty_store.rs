//! In-memory object store with fault injection for tests: [`FaultyStore`] fails puts and reads of commits,
//! anything at random, breaks promises of object stores, and measures the largest read.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

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

/// A promise that an object store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Conditional puts replace objects.
    Unconditional,
    /// Conditional puts look first and write later.
    RacyConditions,
    /// Objects cannot be read after their put.
    StaleReads,
    /// Lists lack objects.
    StaleLists,
    /// It fails at everything.
    Away,
}

/// Faults at random, in one of `one_in` puts.
#[derive(Debug)]
pub(super) struct Random {
    random: StdRng,
    one_in: u32,
    /// Number of faults so far.
    faults: u64,
    /// Puts that are still on their way, long after their sender has given up.
    late: Vec<(Path, PutPayload, PutOptions)>,
}

/// How much rarer faults of reads are: there are many of them, and an opening needs them all.
const READS_RARER: u32 = 10;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Luck {
    Good,
    /// It does not arrive.
    NotDone,
    /// It takes effect, and its answer is lost.
    AnswerLost,
    /// It takes effect twice, of which the client sees the second.
    DoneTwice,
    /// It takes effect later.
    Late,
}

impl Random {
    fn luck(&mut self, times: u32) -> Luck {
        if self.random.random_range(0..self.one_in * times) > 0 {
            return Luck::Good;
        }
        self.faults += 1;
        let lucks = [Luck::NotDone, Luck::AnswerLost, Luck::DoneTwice, Luck::Late];
        lucks[self.random.random_range(0..lucks.len())]
    }

    /// A late put that arrives now.
    fn arriving(&mut self) -> Option<(Path, PutPayload, PutOptions)> {
        if self.late.is_empty() || self.random.random_range(0..4) > 0 {
            return None;
        }
        let number = self.random.random_range(0..self.late.len());
        Some(self.late.swap_remove(number))
    }
}

/// The store.
#[derive(Debug, Default)]
pub(super) struct FaultyStore {
    inner: InMemory,
    /// The promise that it breaks.
    pub(super) broken: Mutex<Option<Broken>>,
    /// Faults at random.
    random: Mutex<Option<Random>>,
    /// Fault of the next put of a commit.
    pub(super) fault: Mutex<Option<Fault>>,
    /// Number of commits that can be read before one read fails, once; `None` for no failure.
    pub(super) reads_until_failure: Mutex<Option<u32>>,
    most_read: AtomicU64,
}

impl FaultyStore {
    /// Begins to fail at random, in one of `one_in` puts.
    pub(super) fn fail_at_random(&self, seed: u64, one_in: u32) {
        let random = StdRng::seed_from_u64(seed);
        *self.random.lock() = Some(Random { random, one_in, faults: 0, late: Vec::new() });
    }

    /// Ends to fail at random; what is on its way arrives. Returns the number of faults.
    pub(super) async fn recover(&self) -> u64 {
        let Some(random) = self.random.lock().take() else { return 0 };
        for (location, payload, options) in random.late {
            let _ = self.inner.put_opts(&location, payload, options).await;
        }
        random.faults
    }

    /// What happens to the next request, where a fault is as many `times` as rare.
    async fn luck(&self, times: u32) -> Luck {
        let (luck, arriving) = match &mut *self.random.lock() {
            Some(random) => (random.luck(times), random.arriving()),
            None => (Luck::Good, None),
        };
        if let Some((location, payload, options)) = arriving {
            let _ = self.inner.put_opts(&location, payload, options).await;
        }
        luck
    }

    fn breaks(&self, promise: Broken) -> bool {
        *self.broken.lock() == Some(promise)
    }

    /// A conditional put as of a store that breaks a promise.
    async fn put_broken(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> object_store::Result<PutResult> {
        if options.mode == PutMode::Create && self.breaks(Broken::RacyConditions) {
            let found = self.inner.head(location).await;
            tokio::task::yield_now().await;
            if found.is_err() {
                options.mode = PutMode::Overwrite;
            }
        }
        if options.mode == PutMode::Create && self.breaks(Broken::Unconditional) {
            options.mode = PutMode::Overwrite;
        }
        self.inner.put_opts(location, payload, options).await
    }

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
        if self.breaks(Broken::Away) {
            return Err(lost());
        }
        match self.luck(1).await {
            Luck::Good => {}
            Luck::NotDone => return Err(lost()),
            Luck::AnswerLost => {
                let _ = self.inner.put_opts(location, payload, options).await;
                return Err(lost());
            }
            Luck::DoneTwice => {
                let _ = self.inner.put_opts(location, payload.clone(), options.clone()).await;
            }
            Luck::Late => {
                if let Some(random) = &mut *self.random.lock() {
                    random.late.push((location.clone(), payload, options));
                }
                return Err(lost());
            }
        }
        let is_commit = location.as_ref().ends_with(".json");
        let fault = if is_commit { self.fault.lock().take() } else { None };
        if fault == Some(Fault::NotDone) {
            return Err(lost());
        }
        let put = self.put_broken(location, payload.clone(), options.clone()).await;
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
        if self.breaks(Broken::Away) || self.luck(READS_RARER).await != Luck::Good {
            return Err(lost());
        }
        let is_head = options.head;
        if self.breaks(Broken::StaleReads) && !is_head {
            let path = location.to_string();
            return Err(object_store::Error::NotFound { path, source: "stale".into() });
        }
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
        if self.breaks(Broken::Away) || self.luck(READS_RARER).await != Luck::Good {
            return Err(lost());
        }
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
        if self.breaks(Broken::Away) {
            return stream::once(async { Err(lost()) }).boxed();
        }
        if self.breaks(Broken::StaleLists) {
            return stream::empty().boxed();
        }
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        if self.breaks(Broken::Away) || self.luck(READS_RARER).await != Luck::Good {
            return Err(lost());
        }
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
