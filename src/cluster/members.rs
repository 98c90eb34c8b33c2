//! The workers of a server: [`Members`], those that answer. Strangers and nodes of another build refuse to
//! ([`Secret::check`](crate::secret::Secret::check)).

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use datafusion::error::DataFusionError;
use datafusion_distributed::GetWorkerInfoRequest;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::timeout;
use url::Url;

use crate::channels::Channels;
use crate::error::ClusterError;
use weir_base::tasks::{Pause, Shutdown};
use weir_base::telemetry::metrics::Metrics;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(2);

/// Time that a worker has to answer, which may be busy with parts of queries.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// The workers of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Members(Arc<Shared>);

struct Shared {
    all: Vec<Url>,
    live: ArcSwap<Live>,
    /// Why each of the others does not count.
    missing: Mutex<BTreeMap<Url, String>>,
    channels: Channels,
    metrics: Arc<Metrics>,
}

/// The workers that answer.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Their URLs, sorted.
    pub(crate) urls: Vec<Url>,
    /// Counts the changes of `urls`.
    pub(crate) generation: u64,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").field("live", &self.live()).finish_non_exhaustive()
    }
}

impl Members {
    /// These workers, none of which has answered yet.
    pub(crate) fn new(mut all: Vec<Url>, channels: Channels, metrics: Arc<Metrics>) -> Self {
        all.sort_unstable();
        all.dedup();
        let live = ArcSwap::from_pointee(Live::default());
        Self(Arc::new(Shared { all, live, missing: Mutex::default(), channels, metrics }))
    }

    /// Those that answered last.
    pub(crate) fn live(&self) -> Arc<Live> {
        self.0.live.load_full()
    }

    /// Asks all workers.
    pub(crate) async fn look(&self) {
        let Shared { all, live, metrics, missing, .. } = &*self.0;
        let answers = join_all(all.iter().map(|worker| self.answer(worker))).await;
        let mut now = Vec::new();
        for (worker, answer) in all.iter().zip(answers) {
            let Err(reason) = answer else {
                missing.lock().remove(worker);
                now.push(worker.clone());
                continue;
            };
            let last = missing.lock().insert(worker.clone(), reason.clone());
            if last.as_ref() != Some(&reason) {
                tracing::warn!(%worker, reason, "a worker does not execute parts of queries");
            }
        }
        metrics.cluster.workers.set(i64::try_from(now.len()).unwrap_or(i64::MAX));
        let last = live.load_full();
        if last.urls != now {
            let names: Vec<&str> = now.iter().map(Url::as_str).collect();
            tracing::info!(workers = ?names, of = all.len(), "workers that execute parts of queries");
            let generation = last.generation.wrapping_add(1);
            live.store(Arc::new(Live { urls: now, generation }));
        }
    }

    /// Whether a worker answers.
    ///
    /// # Errors
    ///
    /// Why not.
    async fn answer(&self, worker: &Url) -> Result<(), String> {
        let asking = async {
            let mut node = self.0.channels.node(worker)?;
            node.get_worker_info(GetWorkerInfoRequest {}).await
        };
        match timeout(ANSWER_TIMEOUT, asking).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err(format!("it has not answered within {ANSWER_TIMEOUT:?}")),
        }
    }

    /// Asks all workers from time to time.
    pub(crate) async fn watch(self, shutdown: Shutdown) {
        loop {
            self.look().await;
            if shutdown.pause(INTERVAL).await != Pause::Elapsed {
                return;
            }
        }
    }
}

/// The innermost cause that an error tells.
fn reason(error: &DataFusionError) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The URL of a setting.
pub(crate) fn url(text: &str, setting: &'static str) -> Result<Url, ClusterError> {
    Url::parse(text).map_err(|error| ClusterError::Setting { setting, why: error.to_string() })
}
