//! Metrics of the PostgreSQL port: [`PortMetrics`].

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Labels of metrics with outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PortLabels {
    /// Outcome, such as `ok` or `refused`.
    pub outcome: &'static str,
}

/// The metrics of the PostgreSQL port.
#[derive(Debug, Default)]
pub struct PortMetrics {
    /// `weir_postgres_connections`: open now, whether they have signed in or not.
    pub connections: Gauge,
    /// `weir_postgres_sign_ins_total{outcome}`: `ok`, `refused`, `throttled`, or `full` for one connection too many.
    pub sign_ins: Family<PortLabels, Counter>,
    /// `weir_postgres_connections_passed_on_total`: to the node of a cluster that has the project.
    pub passed_on: Counter,
    /// `weir_postgres_statements_total{outcome}`: `ok`, `failed` or `broken`, where the client was gone before the end.
    pub statements: Family<PortLabels, Counter>,
    /// `weir_postgres_sent_bytes_total`: all that was sent to clients.
    pub sent_bytes: Counter,
}

impl PortMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "postgres_connections",
            "Open connections of the PostgreSQL port",
            self.connections.clone(),
        );
        registry.register(
            "postgres_sign_ins",
            "Sign-ins to the PostgreSQL port, by outcome",
            self.sign_ins.clone(),
        );
        registry.register(
            "postgres_connections_passed_on",
            "Connections of the PostgreSQL port that went on to the node that has the project",
            self.passed_on.clone(),
        );
        registry.register(
            "postgres_statements",
            "Statements over the PostgreSQL port, by outcome",
            self.statements.clone(),
        );
        registry.register_with_unit(
            "postgres_sent",
            "Bytes sent over the PostgreSQL port",
            Unit::Bytes,
            self.sent_bytes.clone(),
        );
    }
}
