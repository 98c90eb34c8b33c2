//! TLS of the port.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::PortError;
use weir_base::config::postgres_port::PostgresPortConfig;

/// The protocol that clients name if they begin with TLS at once (`sslnegotiation=direct`).
const PROTOCOL: &[u8] = b"postgresql";

/// The TLS of the port, if the settings have a certificate. Loaded before anything else, so that a start with a wrong one
/// changes nothing.
#[derive(Clone, Default)]
pub struct Certificate(pub(crate) Option<TlsAcceptor>);

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads the files of the settings.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the two do not belong together.
    pub fn load(config: &PostgresPortConfig) -> Result<Self, PortError> {
        Ok(Self(config.tls().map(|(cert, key)| acceptor(cert, key)).transpose()?))
    }
}

/// What begins TLS on a connection, with the certificate and key of these files.
///
/// # Errors
///
/// A file cannot be read, or the two do not belong together.
fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, PortError> {
    let of =
        |file: &Path, why: String| PortError::Certificate { file: file.display().to_string(), why };
    let chain =
        CertificateDer::pem_file_iter(cert).and_then(|own| own.collect::<Result<Vec<_>, _>>());
    let chain = chain.map_err(|error| of(cert, error.to_string()))?;
    if chain.is_empty() {
        return Err(of(cert, "there is no certificate in it".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, error.to_string()))?;
    let versions = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| of(cert, error.to_string()))?;
    let mut config = versions
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| of(key, error.to_string()))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
