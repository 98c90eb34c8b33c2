//! Executes parts of queries behind a port: [`Service`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion_distributed::{
    DistributedExt, LocalWorkerContext, Worker, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse, WorkerPlanRewriteHandler, WorkerQueryContext,
    WorkerSessionBuilder,
};
use tokio::net::TcpListener;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Status};
use url::Url;

use crate::channels::{CONNECTION_WINDOW_BYTES, Channels, EXCHANGES_MAX, STREAM_WINDOW_BYTES, pem};
use crate::codec::Codec;
use crate::error::ClusterError;
use crate::secret::{Secret, Stranger};
use crate::tasks::{Counted, Tasks};
use crate::{members, secret};
use weir_base::config::cluster::ClusterConfig;
use weir_base::tasks::Shutdown;
use weir_base::telemetry::metrics::Metrics;
use weir_query::fragments::FragmentRuntime;

/// Exchanges of a connection that may end before they are accepted.
const RESETS_MAX: usize = 1 << 16;

/// A connection on which nothing arrives is asked after so long, and closed if it does not answer within so long again.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The port of a node as others see it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The URL under which other nodes reach it.
    pub(crate) url: Url,
    tls: Option<ServerTlsConfig>,
}

impl Endpoint {
    /// The port on a socket.
    ///
    /// # Errors
    ///
    /// A file of the settings cannot be read, or the URL is none.
    pub(crate) fn new(
        config: &ClusterConfig,
        listening: SocketAddr,
    ) -> std::result::Result<Self, ClusterError> {
        let tls = match config.tls() {
            Some((cert, key)) => {
                let identity = Identity::from_pem(pem(cert)?, pem(key)?);
                Some(ServerTlsConfig::new().identity(identity))
            }
            None => None,
        };
        Ok(Self { url: members::url(&config.own_url(listening), "cluster-url")?, tls })
    }
}

/// Executes parts of queries. Clones share memory and limits.
#[derive(Clone)]
pub(crate) struct Service {
    worker: Worker,
    runtime: FragmentRuntime,
    secret: Secret,
    endpoint: Endpoint,
    tasks: Tasks,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("url", &self.endpoint.url).finish_non_exhaustive()
    }
}

impl Service {
    /// The service behind a port, which executes at most so many tasks at once.
    pub(crate) fn new(
        endpoint: Endpoint,
        runtime: FragmentRuntime,
        (channels, secret): (Channels, Secret),
        (tasks_max, metrics): (usize, Arc<Metrics>),
    ) -> Self {
        let tasks = Tasks::new(tasks_max, metrics);
        let sessions = Sessions { runtime: runtime.clone(), channels, tasks: tasks.clone() };
        let worker = Worker::from_session_builder(sessions)
            .with_runtime_env(Arc::clone(runtime.environment()));
        Self { worker, runtime, secret, endpoint, tasks }
    }

    /// The URL under which other nodes reach it.
    pub(crate) fn url(&self) -> &Url {
        &self.endpoint.url
    }

    /// What it executes fragments with.
    pub(crate) fn runtime(&self) -> &FragmentRuntime {
        &self.runtime
    }

    /// For tasks of this node itself, which need no connection.
    pub(crate) fn local(&self) -> LocalWorkerContext {
        self.worker.to_local_worker_context(self.endpoint.url.clone())
    }

    /// Serves connections until the shutdown begins. To be run on the threads of queries.
    ///
    /// # Errors
    ///
    /// The certificate cannot be used, or the socket fails.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        shutdown: Shutdown,
    ) -> std::result::Result<(), tonic::transport::Error> {
        let Self { worker, secret, endpoint, tasks, .. } = self;
        let refused = tasks.clone();
        let check = move |request: Request<()>| match secret.check(request.metadata().as_ref()) {
            Ok(()) => Ok(request),
            Err(stranger) => {
                refused.count("refused");
                Err(match stranger {
                    Stranger::Secret => {
                        Status::unauthenticated("the secret of the cluster is missing or wrong")
                    }
                    Stranger::Build(own) => {
                        Status::failed_precondition(format!("it is of the build {own}"))
                    }
                })
            }
        };
        let mut server = Server::builder()
            .tcp_nodelay(true)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(EXCHANGES_MAX)
            // A query that is cancelled ends all of its exchanges at once, of which some have not been accepted yet.
            .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        if let Some(tls) = endpoint.tls {
            server = server.tls_config(tls)?;
        }
        let service =
            InterceptedService::new(Counted { inner: worker.into_worker_server(), tasks }, check);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let ended = async move { shutdown.cancelled().await };
        server.add_service(service).serve_with_incoming_shutdown(incoming, ended).await
    }
}

/// Makes the sessions of tasks.
struct Sessions {
    runtime: FragmentRuntime,
    channels: Channels,
    tasks: Tasks,
}

#[async_trait]
impl WorkerSessionBuilder for Sessions {
    async fn build_session_state(&self, mut context: WorkerQueryContext) -> Result<SessionState> {
        let settings = secret::settings(&context.headers)?;
        let config = context.builder.config().take().unwrap_or_default();
        let (config, stop) = self.runtime.config(config, &settings);
        let config = match self.tasks.stop_with(&context.headers, stop) {
            Some(stop) => config.with_extension(Arc::new(stop)),
            None => config,
        };
        let session = self.runtime.session(config);
        let is_sent = Tasks::is_sent(&context.headers);
        let reader = self.runtime.reader(&session, &settings, is_sent).await?;
        Ok(SessionStateBuilder::new_from_existing(session)
            .with_distributed_user_codec(Codec(reader))
            .with_distributed_channel_resolver(self.channels.clone())
            .with_distributed_passthrough_headers(secret::headers(&settings)?)?
            .with_distributed_worker_plan_rewrite_handler(Admitting(self.runtime.clone()))
            .build())
    }
}

/// Refuses plans that read or write anything else than events.
struct Admitting(FragmentRuntime);

impl WorkerPlanRewriteHandler for Admitting {
    fn rewrite_worker_plan(
        &self,
        event: WorkerPlanRewriteEvent<'_>,
    ) -> Result<WorkerPlanRewriteEventResponse> {
        self.0.admitted(event.plan).map(WorkerPlanRewriteEventResponse::new)
    }
}
