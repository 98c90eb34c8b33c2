//! Settings of a cluster: nodes that execute parts of each other's queries.

use std::net::SocketAddr;
use std::path::PathBuf;

use bytesize::ByteSize;
use url::{Host, Url};

use crate::config::bounds::{address, bytes, number, socket};

/// Least letters of the secret of a cluster.
const SECRET_CHARS_MIN: usize = 32;

/// Where a node executes parts of queries, and which others do; how servers of a bucket reach each other.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterConfig {
    /// Whether a server with `storage-log bucket` that stands by answers reads, and passes all other requests on to the
    /// server that writes; otherwise it refuses them
    #[arg(long, env = "WEIR_STANDBY_READS", default_value_t = true, action = clap::ArgAction::Set)]
    pub standby_reads: bool,
    /// URL under which the other servers of a bucket reach this one, to pass requests on, such as `http://10.0.0.5:8000`
    /// [default: that of `listen`, if it is one address]
    #[arg(long, env = "WEIR_NODE_URL", value_parser = address)]
    pub node_url: Option<String>,
    /// Most shards that this server has at a time, if an operator has added shards (`weir shards add`). The memory that each
    /// shard has for itself is divided by it [range: 1 to 256]
    #[arg(long, env = "WEIR_NODE_SHARDS_MAX", default_value_t = 4, value_parser = number(1_usize, 256))]
    pub node_shards_max: usize,
    /// Address and port on which this node executes parts of queries for other nodes; port 0 picks a free one. Other
    /// addresses than those of this machine need `cluster-tls-cert` [default: no port]
    #[arg(long, env = "WEIR_CLUSTER_LISTEN", value_parser = socket)]
    pub cluster_listen: Option<SocketAddr>,
    /// URL under which other nodes reach `cluster-listen`, such as `https://10.0.0.5:8100` [default: that of
    /// `cluster-listen`]
    #[arg(long, env = "WEIR_CLUSTER_URL", value_parser = address)]
    pub cluster_url: Option<String>,
    /// URLs of the workers that execute parts of the large queries of this server, separated by commas [default: none]
    #[arg(long, env = "WEIR_CLUSTER_WORKERS", value_delimiter = ',', value_parser = address)]
    pub cluster_workers: Vec<String>,
    /// Secret that all nodes share, of at least 32 characters: who has it reads all events [default: none]
    #[arg(long, env = "WEIR_CLUSTER_SECRET", hide_env_values = true, hide_default_value = true)]
    pub cluster_secret: Option<String>,
    /// File with the certificate of `cluster-listen` and those of its issuers, in PEM; it is read at start [default: no
    /// TLS]
    #[arg(long, env = "WEIR_CLUSTER_TLS_CERT")]
    pub cluster_tls_cert: Option<PathBuf>,
    /// File with the private key of `cluster-tls-cert`, in PEM [default: no TLS]
    #[arg(long, env = "WEIR_CLUSTER_TLS_KEY")]
    pub cluster_tls_key: Option<PathBuf>,
    /// File with the certificates, in PEM, of which one has issued those of the other nodes [default: `cluster-tls-cert`]
    #[arg(long, env = "WEIR_CLUSTER_TLS_CA")]
    pub cluster_tls_ca: Option<PathBuf>,
    /// Least size of the files that a query reads for it to be executed by the workers, too. Too small sends queries over
    /// the network that one node answers faster [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_CLUSTER_QUERY_MIN_BYTES", default_value = "256MiB", value_parser = bytes("0B", "1PiB"))]
    pub cluster_query_min_bytes: ByteSize,
    /// Parts of queries that this node executes at once for others; further ones are refused, and the server that asks
    /// runs the query by itself [range: 1 to 100000]
    #[arg(long, env = "WEIR_CLUSTER_FRAGMENTS_MAX", default_value_t = 64, value_parser = number(1_usize, 100_000))]
    pub cluster_fragments_max: usize,
}

impl ClusterConfig {
    /// The files of the certificate and its key, if TLS is on.
    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.cluster_tls_cert.as_ref().zip(self.cluster_tls_key.as_ref())
    }

    /// The file with the certificates of issuers, if there is one.
    pub fn issuers(&self) -> Option<&PathBuf> {
        self.cluster_tls_ca.as_ref().or(self.cluster_tls_cert.as_ref())
    }

    /// The URL under which other nodes reach a port on this address.
    pub fn own_url(&self, listening: SocketAddr) -> String {
        let scheme = if self.tls().is_some() { "https" } else { "http" };
        self.cluster_url.clone().unwrap_or_else(|| format!("{scheme}://{listening}"))
    }

    /// Whether the node with a URL is on this machine.
    pub fn is_local(url: &str) -> bool {
        let host = Url::parse(url).ok().and_then(|url| url.host().map(|host| host.to_owned()));
        match host {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// What is wrong with the settings together.
    pub(super) fn problem(&self) -> Option<(&'static [&'static str], String)> {
        let wrong =
            |settings: &'static [&'static str], problem: &str| Some((settings, problem.to_owned()));
        if self.cluster_tls_cert.is_some() != self.cluster_tls_key.is_some() {
            let settings = &["cluster-tls-cert", "cluster-tls-key"];
            return wrong(settings, "a certificate and its key are needed together");
        }
        let files = [
            (&["cluster-tls-cert"][..], &self.cluster_tls_cert),
            (&["cluster-tls-key"][..], &self.cluster_tls_key),
            (&["cluster-tls-ca"][..], &self.cluster_tls_ca),
        ];
        let missing = files.into_iter().find_map(|(setting, path)| {
            let missing = path.as_deref().filter(|path| !path.is_file())?;
            Some((setting, format!("there is no file {}", missing.display())))
        });
        if missing.is_some() {
            return missing;
        }
        let Some(listen) = self.cluster_listen else {
            if self.cluster_workers.is_empty() {
                return None;
            }
            let problem = "workers read the newest events from this server: set cluster-listen";
            return wrong(&["cluster-workers", "cluster-listen"], problem);
        };
        let secret = self.cluster_secret.as_deref().unwrap_or_default();
        if secret.chars().count() < SECRET_CHARS_MIN
            || !secret.chars().all(|one| one.is_ascii_graphic())
        {
            let problem = "the nodes of a cluster share a secret of at least 32 printable ASCII characters, without \
                           spaces";
            return wrong(&["cluster-secret", "cluster-listen"], problem);
        }
        if !listen.ip().is_loopback() && self.tls().is_none() {
            let problem = format!(
                "on {listen} events would be sent in clear over the network: set cluster-tls-cert and cluster-tls-key, \
                 or listen on 127.0.0.1"
            );
            return Some((&["cluster-listen", "cluster-tls-cert"], problem));
        }
        if listen.ip().is_unspecified() && self.cluster_url.is_none() {
            let problem = format!("{listen} is no address for other nodes: set cluster-url");
            return Some((&["cluster-listen", "cluster-url"], problem));
        }
        let remote = self.cluster_workers.iter().find(|url| !Self::is_local(url));
        if let Some(url) = remote.filter(|url| url.starts_with("http:")) {
            let problem = format!(
                "{url} would get the secret and events in clear over the network: use https"
            );
            return Some((&["cluster-workers"], problem));
        }
        let own = self.own_url(listen);
        if let Some(remote) = remote.filter(|_| Self::is_local(&own)) {
            let problem = format!("{remote} cannot reach this server under {own}: set cluster-url");
            return Some((&["cluster-url", "cluster-listen"], problem));
        }
        let mut others = self.cluster_workers.iter().chain(&self.cluster_url);
        if others.any(|url| url.starts_with("https:")) && self.issuers().is_none() {
            let problem = "certificates of other nodes are checked: set cluster-tls-ca";
            return wrong(&["cluster-workers", "cluster-tls-ca"], problem);
        }
        None
    }
}
