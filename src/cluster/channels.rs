//! Connections to other nodes: [`Channels`], and [`QueryChannels`], which write the plans of one query.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, MaybeEncoded, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
    grpc,
};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use http::{HeaderMap, Request};
use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tower::ServiceExt;
use url::Url;

use crate::codec::Writer;
use crate::error::ClusterError;
use crate::secret::Secret;
use weir_base::config::cluster::ClusterConfig;

/// Time to connect to a node of the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection on which nothing arrives is asked after so long, and has so long to answer: a node that hangs, or is cut
/// off, fails a query after both.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));

/// Bytes that a node may send before they are read: of the rows of one partition, and of all of a connection, where readers
/// that pause must not hold up others.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 1 << 20;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Exchanges of a connection at once: one for each partition that is read.
pub(crate) const EXCHANGES_MAX: u32 = 1 << 20;

/// Connections to other nodes, each opened at first use. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Channels(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    secret: Secret,
    tls: Option<ClientTlsConfig>,
    open: Mutex<BTreeMap<Url, Channel>>,
}

impl Channels {
    /// No connections yet.
    ///
    /// # Errors
    ///
    /// The certificates of issuers cannot be read.
    pub(crate) fn new(
        config: &ClusterConfig,
        secret: Secret,
    ) -> std::result::Result<Self, ClusterError> {
        let issuers = config.issuers().map(|file| pem(file)).transpose()?;
        let tls =
            issuers.map(|pem| ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)));
        Ok(Self(Arc::new(Shared { secret, tls, open: Mutex::default() })))
    }

    /// The connection to a node.
    fn channel(&self, url: &Url) -> Result<Channel> {
        let mut open = self.0.open.lock();
        if let Some(channel) = open.get(url) {
            return Ok(channel.clone());
        }
        let failed = |error: tonic::transport::Error| DataFusionError::External(Box::new(error));
        let mut endpoint = Endpoint::from_shared(url.to_string())
            .map_err(failed)?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        if let (Some(tls), "https") = (&self.0.tls, url.scheme()) {
            endpoint = endpoint.tls_config(tls.clone()).map_err(failed)?;
        }
        let channel = endpoint.connect_lazy();
        open.insert(url.clone(), channel.clone());
        Ok(channel)
    }

    /// What speaks with a node.
    ///
    /// # Errors
    ///
    /// The URL is none of a node.
    pub(crate) fn node(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let secret = self.0.secret.clone();
        let channel = self.channel(url)?.map_request(move |mut request: Request<Body>| {
            secret.add_to(request.headers_mut());
            request
        });
        Ok(grpc::create_worker_client(grpc::BoxCloneSyncChannel::new(channel)))
    }
}

/// A file of certificates or of a key.
pub(crate) fn pem(file: &Path) -> std::result::Result<Vec<u8>, ClusterError> {
    std::fs::read(file).map_err(|error| ClusterError::File {
        file: file.display().to_string(),
        why: error.to_string(),
    })
}

/// For nodes that only read rows from others.
#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(NodeChannel {
            node: self.node(url)?,
            writer: None,
            failure: Failure::default(),
        }))
    }
}

/// Connections for one query, which write its plans.
#[derive(Clone, Debug)]
pub(crate) struct QueryChannels {
    channels: Channels,
    writer: Arc<Writer>,
    failure: Failure,
}

impl QueryChannels {
    pub(crate) fn new(channels: Channels, writer: Arc<Writer>) -> Self {
        Self { channels, writer, failure: Failure::default() }
    }
}

#[async_trait]
impl ChannelResolver for QueryChannels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let (node, writer) = (self.channels.node(url)?, Some(Arc::clone(&self.writer)));
        Ok(Box::new(NodeChannel { node, writer, failure: self.failure.clone() }))
    }
}

/// Why a plan could not be given to a node. The engine notes that only at the end, while the rows of that task are waited
/// for; so it ends all reads of the query.
#[derive(Clone, Debug)]
struct Failure(Arc<watch::Sender<Option<String>>>);

impl Default for Failure {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Failure {
    /// The rows until their end, or until the failure.
    fn ending(
        &self,
        rows: BoxStream<'static, Result<RecordBatch>>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let mut failed = self.0.subscribe();
        let failing = async move {
            let why = failed.wait_for(Option::is_some).await.map(|why| why.clone());
            match why {
                Ok(Some(why)) => DataFusionError::Execution(why),
                // The query has ended.
                _ => std::future::pending().await,
            }
        };
        let state = Some((rows, failing.boxed()));
        stream::unfold(state, |state| async move {
            let (mut rows, mut failing) = state?;
            tokio::select! {
                biased;
                error = &mut failing => Some((Err(error), None)),
                batch = rows.next() => batch.map(|batch| (batch, Some((rows, failing)))),
            }
        })
        .boxed()
    }
}

/// What speaks with a node.
struct NodeChannel {
    node: Box<dyn WorkerChannel>,
    /// Writes plans, on the server of a query.
    writer: Option<Arc<Writer>>,
    failure: Failure,
}

#[async_trait]
impl WorkerChannel for NodeChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        mut request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let begun = async {
            request.plan = match (request.plan, &self.writer) {
                (MaybeEncoded::Decoded(plan), Some(writer)) => {
                    MaybeEncoded::Encoded(writer.encode(plan)?)
                }
                (plan, _) => plan,
            };
            self.node.coordinator_channel(headers, request, messages, metrics, context).await
        };
        let begun = begun.await;
        if let Err(error) = &begun {
            self.failure.0.send_replace(Some(error.to_string()));
        }
        begun
    }

    /// Reads each partition by itself: with several in one exchange, those that nobody reads yet would hold up the one that
    /// is waited for.
    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let mut partitions = Vec::new();
        for partition in request.target_partition_start..request.target_partition_end {
            let one = ExecuteTaskRequest {
                task_key: request.task_key,
                target_partition_start: partition,
                target_partition_end: partition.saturating_add(1),
                producer_head: request.producer_head.clone(),
            };
            let (headers, metrics) = (headers.clone(), metrics.clone());
            let rows = self.node.execute_task(headers, one, metrics, context).await?;
            partitions.extend(rows.into_iter().map(|rows| self.failure.ending(rows)));
        }
        Ok(partitions)
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        self.node.get_worker_info(request).await
    }
}
