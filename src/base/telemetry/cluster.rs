//! Metrics of queries over several nodes: [`ClusterMetrics`].

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Labels of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FragmentLabels {
    /// Outcome, such as `begun`, `full` or `refused`.
    pub outcome: &'static str,
}

/// The metrics of queries over several nodes.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    /// `weir_cluster_workers`: workers of the same version that answer.
    pub workers: Gauge,
    /// `weir_cluster_queries_total`: queries of this server that were begun over several nodes.
    pub queries: Counter,
    /// `weir_cluster_queries_failed_total`: queries that failed over several nodes, and succeeded when they were run again.
    pub queries_failed: Counter,
    /// `weir_cluster_queries_local_total`: large queries with a part that only this server can execute.
    pub queries_local: Counter,
    /// `weir_cluster_fragments_running`: parts of queries that this node executes for others now.
    pub fragments_running: Gauge,
    /// `weir_cluster_fragments_total{outcome}`: parts of queries of other nodes: `begun`, `full`, or `refused` to nodes with
    /// another secret or build.
    pub fragments: Family<FragmentLabels, Counter>,
}

impl ClusterMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "cluster_workers",
            "Workers of the same version that answer",
            self.workers.clone(),
        );
        registry.register(
            "cluster_queries",
            "Queries that were begun over several nodes",
            self.queries.clone(),
        );
        registry.register(
            "cluster_queries_failed",
            "Queries that failed over several nodes and succeeded when they were run again",
            self.queries_failed.clone(),
        );
        registry.register(
            "cluster_queries_local",
            "Large queries with a part that only this server can execute",
            self.queries_local.clone(),
        );
        registry.register(
            "cluster_fragments_running",
            "Parts of queries that this node executes for others",
            self.fragments_running.clone(),
        );
        registry.register(
            "cluster_fragments",
            "Parts of queries of other nodes, by outcome",
            self.fragments.clone(),
        );
    }
}
