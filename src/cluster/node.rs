//! A node of a cluster: [`Node`], its port with what it needs of the settings.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use url::Url;

use crate::channels::Channels;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::members;
use crate::members::{Directory, Members};
use crate::secret::Secret;
use crate::service::{Endpoint, Service};
use weir_base::config::cluster::ClusterConfig;
use weir_base::tasks::{Shutdown, Tasks};
use weir_base::telemetry::metrics::Metrics;
use weir_query::fragments::FragmentRuntime;
use weir_query::kernel::distribution::Distribute;

/// A node whose port is bound. Others that connect before it serves wait in the kernel's accept queue.
pub struct Node {
    config: ClusterConfig,
    listener: TcpListener,
    endpoint: Endpoint,
    channels: Channels,
    secret: Secret,
    workers: Vec<Url>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("endpoint", &self.endpoint.url).finish_non_exhaustive()
    }
}

/// What a node runs with.
pub struct Process {
    /// Tasks on the threads of queries. To be waited for before these end: to another node, the rows of a part that is cut
    /// off might look like all of them.
    pub tasks: Tasks,
    /// Ends the node, which executes to the end what it has begun.
    pub shutdown: Shutdown,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

impl Node {
    /// Binds the port of the settings; `None` if they have none. `version` is that of the program.
    ///
    /// # Errors
    ///
    /// The address, a file or a URL cannot be used.
    pub async fn listen(
        config: &ClusterConfig,
        version: &str,
    ) -> Result<Option<Self>, ClusterError> {
        let Some(address) = config.cluster_listen else { return Ok(None) };
        let setting = "cluster-listen";
        let unusable = |error: std::io::Error| ClusterError::Setting {
            setting,
            why: format!("cannot listen on {address}: {error}"),
        };
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let build = build(version)?;
        let secret = Secret::new(config.cluster_secret.as_deref().unwrap_or_default(), &build)?;
        let endpoint = Endpoint::new(config, listener.local_addr().map_err(unusable)?)?;
        let channels = Channels::new(config, secret.clone())?;
        let workers = config.cluster_workers.iter();
        let workers = workers.map(|text| members::url(text, "cluster-workers"));
        let workers = workers.collect::<Result<_, _>>()?;
        let config = config.clone();
        Ok(Some(Self { config, listener, endpoint, channels, secret, workers }))
    }

    /// The URL under which other nodes reach it.
    pub fn url(&self) -> &str {
        self.endpoint.url.as_str().trim_end_matches('/')
    }

    /// Executes parts of the queries of other nodes, until the process shuts down.
    pub fn work(self, runtime: FragmentRuntime, process: &Process) {
        self.serve(runtime, process);
    }

    fn serve(self, runtime: FragmentRuntime, process: &Process) -> Serving {
        let Self { config, listener, endpoint, channels, secret, workers } = self;
        let metrics = Arc::clone(&process.metrics);
        let sender = (channels.clone(), secret);
        let limit = config.cluster_fragments_max;
        let service = Service::new(endpoint, runtime, sender, (limit, metrics));
        let serving = service.clone().serve(listener, process.shutdown.clone());
        process.tasks.spawn("cluster-port", async move {
            if let Err(error) = serving.await {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the port for parts of queries of other nodes is closed");
            }
        });
        Serving { config, service, channels, workers }
    }

    /// Executes parts of the queries of this server and of others, and gives the engine of this server its workers: those of
    /// the settings and of the directory.
    pub fn distribute(self, process: Process, directory: Option<Arc<dyn Directory>>) -> Distribute {
        Distribute::by(move |runtime| {
            let Serving { config, service, channels, workers } = self.serve(runtime, &process);
            let Process { tasks, shutdown, metrics } = process;
            let is_local = ClusterConfig::is_local(service.url().as_str());
            let own = (workers, is_local);
            let members = Members::new(own, directory, channels.clone(), metrics);
            tasks.spawn("cluster-workers", members.clone().watch(shutdown));
            Arc::new(Coordinator::new(&config, service, members, channels))
        })
    }
}

/// A node that serves.
struct Serving {
    config: ClusterConfig,
    service: Service,
    channels: Channels,
    workers: Vec<Url>,
}

/// Names the build of this program: its version if that has the commit, and a digest of the executable otherwise, because
/// programs of different sources may have the same version.
fn build(version: &str) -> Result<String, ClusterError> {
    if version.contains('(') {
        return Ok(version.to_owned());
    }
    let unreadable = |file: String| {
        move |error: std::io::Error| ClusterError::File { file, why: error.to_string() }
    };
    let path = std::env::current_exe().map_err(unreadable("the program".to_owned()))?;
    let bytes = std::fs::read(&path).map_err(unreadable(path.display().to_string()))?;
    let digest: String =
        Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{version} {digest}"))
}
