//! Tasks that a node executes for others, from the arrival of a plan until the node that has sent it ends the exchange, or
//! is gone: [`Tasks`]. They are limited in number, and their functions stop when they end, whatever the engine still keeps.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use weir_base::telemetry::cluster::FragmentLabels;
use weir_base::telemetry::metrics::Metrics;
use weir_query::fragments::Stop;

/// The header by which the session of a task is found; what others send under this name is replaced.
const TASK: HeaderName = HeaderName::from_static("weir-task");

/// How the path of the call ends that sends a plan and lasts as long as the query.
const CALL: &str = "/CoordinatorChannel";

/// The tasks of a node. Clones share them.
#[derive(Clone)]
pub(crate) struct Tasks(Arc<Shared>);

struct Shared {
    slots: Arc<Semaphore>,
    next: AtomicU64,
    /// What stops the functions of each task, once its session is made.
    running: Mutex<HashMap<u64, Option<Stop>>>,
    metrics: Arc<Metrics>,
}

/// A task that has not ended.
struct Task {
    number: u64,
    tasks: Tasks,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Task {
    fn drop(&mut self) {
        let stop = self.tasks.0.running.lock().remove(&self.number);
        drop(stop);
        self.tasks.0.metrics.cluster.fragments_running.dec();
    }
}

impl Tasks {
    /// At most so many at once.
    pub(crate) fn new(tasks_max: usize, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared {
            slots: Arc::new(Semaphore::new(tasks_max)),
            next: AtomicU64::new(0),
            running: Mutex::default(),
            metrics,
        }))
    }

    /// Counts an outcome.
    pub(crate) fn count(&self, outcome: &'static str) {
        self.0.metrics.cluster.fragments.get_or_create(&FragmentLabels { outcome }).inc();
    }

    /// Begins a task; `None` if as many run as may.
    fn begin(&self) -> Option<Task> {
        let Ok(permit) = Arc::clone(&self.0.slots).try_acquire_owned() else {
            self.count("full");
            return None;
        };
        self.count("begun");
        self.0.metrics.cluster.fragments_running.inc();
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.running.lock().insert(number, None);
        Some(Task { number, tasks: self.clone(), _permit: permit })
    }

    /// Whether a request with these headers has a plan that was sent. Tasks of the node itself have no such header.
    pub(crate) fn is_sent(headers: &HeaderMap) -> bool {
        headers.contains_key(TASK)
    }

    /// Stops functions with the task that a request with these headers is of; at once if that has ended. Tasks of the node
    /// itself end with their session.
    pub(crate) fn stop_with(&self, headers: &HeaderMap, stop: Stop) -> Option<Stop> {
        let number = headers.get(TASK).and_then(|own| own.to_str().ok()?.parse::<u64>().ok());
        let Some(number) = number else { return Some(stop) };
        if let Some(own) = self.0.running.lock().get_mut(&number) {
            *own = Some(stop);
        }
        None
    }
}

/// The service of a node, in which each plan is a task.
#[derive(Clone)]
pub(crate) struct Counted<S> {
    pub(crate) inner: S,
    pub(crate) tasks: Tasks,
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().remove(TASK);
        if !request.uri().path().ends_with(CALL) {
            return self.inner.call(request).boxed();
        }
        let Some(task) = self.tasks.begin() else {
            let full = Status::resource_exhausted("a worker executes as many tasks as it may");
            return ready(Ok(full.into_http())).boxed();
        };
        request.headers_mut().insert(TASK, HeaderValue::from(task.number));
        // The node that has sent the plan ends its messages with the query, and the engine then drops them.
        let request = request.map(|messages| {
            Body::new(messages.map_err(move |error| {
                let _ = &task;
                error
            }))
        });
        self.inner.call(request).boxed()
    }
}
