//! Settings of the PostgreSQL port: address, TLS, limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::bounds::{number, socket, time};

/// Address, certificate and limits of the port for clients of PostgreSQL.
#[derive(Clone, Debug, clap::Args)]
pub struct PostgresPortConfig {
    /// Address and port on which clients of PostgreSQL, such as psql and BI tools, read the tables; port 0 picks a free
    /// one. Other addresses than those of this machine need `postgres-tls-cert` [default: no port]
    #[arg(long, env = "WEIR_POSTGRES_LISTEN", value_parser = socket)]
    pub postgres_listen: Option<SocketAddr>,
    /// File with the certificate of the PostgreSQL port and those of its issuers, in PEM; with it connections without TLS
    /// are refused. The file is read at start [default: no TLS]
    #[arg(long, env = "WEIR_POSTGRES_TLS_CERT")]
    pub postgres_tls_cert: Option<PathBuf>,
    /// File with the private key of `postgres-tls-cert`, in PEM [default: no TLS]
    #[arg(long, env = "WEIR_POSTGRES_TLS_KEY")]
    pub postgres_tls_key: Option<PathBuf>,
    /// Open connections of the PostgreSQL port that have signed in; further ones are refused with the code 53300. A
    /// quarter of this number, at least 4, may be about to sign in; further clients wait in the kernel's accept queue
    /// [range: 1 to 10000]
    #[arg(long, env = "WEIR_POSTGRES_CONNECTIONS_MAX", default_value_t = 100, value_parser = number(1_u32, 10_000))]
    pub postgres_connections_max: u32,
    /// Longest time between two statements of a connection of the PostgreSQL port, which is closed after it [range: 1s to
    /// 30d]
    #[arg(long, env = "WEIR_POSTGRES_IDLE_TIMEOUT", default_value = "1h", value_parser = time("1s", "30d"))]
    pub postgres_idle_timeout: Duration,
}

impl PostgresPortConfig {
    /// The files of the certificate and its key, if TLS is on.
    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.postgres_tls_cert.as_ref().zip(self.postgres_tls_key.as_ref())
    }

    /// What is wrong with the settings together.
    pub(super) fn problem(&self) -> Option<(&'static [&'static str], String)> {
        let has_both = self.postgres_tls_cert.is_some() == self.postgres_tls_key.is_some();
        if !has_both {
            let problem = "a certificate and its key are needed together".to_owned();
            return Some((&["postgres-tls-cert", "postgres-tls-key"], problem));
        }
        if let Some(address) = self.postgres_listen
            && !address.ip().is_loopback()
            && self.tls().is_none()
        {
            let problem = format!(
                "on {address} keys would be sent in clear over the network: set postgres-tls-cert and postgres-tls-key, \
                 or listen on 127.0.0.1"
            );
            return Some((&["postgres-listen", "postgres-tls-cert"], problem));
        }
        let files = [
            (&["postgres-tls-cert"][..], &self.postgres_tls_cert),
            (&["postgres-tls-key"], &self.postgres_tls_key),
        ];
        files.into_iter().find_map(|(setting, path)| {
            let missing = path.as_deref().filter(|path| !path.is_file())?;
            Some((setting, format!("there is no file {}", missing.display())))
        })
    }
}
