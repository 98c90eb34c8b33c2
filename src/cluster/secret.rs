//! The secret that the nodes of a cluster share: [`Secret`]. It is a header of each request between them, beside the
//! settings of the query that the request is about.

use std::marker::PhantomData;

use datafusion::error::{DataFusionError, Result};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use crate::error::ClusterError;
use weir_event::json;
use weir_query::fragments::FragmentSettings;

/// The header with the build of the program.
const BUILD: HeaderName = HeaderName::from_static("weir-build");

/// The header with the settings of a query, in JSON.
const SETTINGS: HeaderName = HeaderName::from_static("weir-fragment");

/// The secret of a cluster.
#[derive(Clone)]
pub(crate) struct Secret {
    header: HeaderValue,
    /// Compared instead of the secret, so that the time it takes says nothing about the secret.
    digest: [u8; 32],
    build: HeaderValue,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It does not have the secret.
    Secret,
    /// It is of another build of the program than this.
    Build(String),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Secret {
    /// The secret with this text, for nodes of this build.
    ///
    /// # Errors
    ///
    /// A header cannot have it.
    pub(crate) fn new(text: &str, build: &str) -> std::result::Result<Self, ClusterError> {
        let wrong = |_| ClusterError::Setting {
            setting: "cluster-secret",
            why: "it has characters that are not printable ASCII".to_owned(),
        };
        let mut header = HeaderValue::try_from(format!("Bearer {text}")).map_err(wrong)?;
        header.set_sensitive(true);
        let digest = Sha256::digest(header.as_bytes()).into();
        let build = HeaderValue::try_from(build).map_err(wrong)?;
        Ok(Self { header, digest, build })
    }

    /// Checks the headers of a request.
    ///
    /// # Errors
    ///
    /// It is no request of a node of this cluster and build. Others may not be able to read plans, or read them otherwise.
    pub(crate) fn check(&self, headers: &HeaderMap) -> std::result::Result<(), Stranger> {
        let sent = headers.get(AUTHORIZATION);
        let is_own =
            |sent: &HeaderValue| <[u8; 32]>::from(Sha256::digest(sent.as_bytes())) == self.digest;
        if !sent.is_some_and(is_own) {
            return Err(Stranger::Secret);
        }
        match headers.get(BUILD) == Some(&self.build) {
            true => Ok(()),
            false => Err(Stranger::Build(self.build.to_str().unwrap_or_default().to_owned())),
        }
    }

    /// Adds it to a request.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        headers.insert(AUTHORIZATION, self.header.clone());
        headers.insert(BUILD, self.build.clone());
    }
}

/// The headers of requests about a query.
///
/// # Errors
///
/// A header cannot have the settings: a bug.
pub(crate) fn headers(settings: &FragmentSettings) -> Result<HeaderMap> {
    let text = serde_json::to_string(settings).map_err(|error| wrong(&error))?;
    let text = HeaderValue::try_from(text).map_err(|error| wrong(&error))?;
    Ok(HeaderMap::from_iter([(SETTINGS, text)]))
}

/// The settings of the query that a request is about.
///
/// # Errors
///
/// It has none, or others.
pub(crate) fn settings(headers: &HeaderMap) -> Result<FragmentSettings> {
    let missing = || DataFusionError::Plan("a fragment without settings".to_owned());
    let text = headers.get(SETTINGS).ok_or_else(missing)?;
    json::read_as(PhantomData, text.as_bytes()).map_err(|error| wrong(&error))
}

fn wrong(error: &dyn std::error::Error) -> DataFusionError {
    DataFusionError::Plan(format!("settings of a fragment: {error}"))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::AUTHORIZATION;

    use super::{Secret, Stranger, settings};

    const TEXT: &str = "0123456789abcdef0123456789abcdef";

    fn headers(secret: &Secret) -> HeaderMap {
        let mut headers = HeaderMap::new();
        secret.add_to(&mut headers);
        headers
    }

    #[test]
    fn others_are_not_let_in() {
        let secret = Secret::new(TEXT, "1 (a)").expect("a secret");
        assert_eq!(secret.check(&headers(&secret)), Ok(()));
        assert_eq!(secret.check(&HeaderMap::new()), Err(Stranger::Secret));
        for sent in ["", "Bearer ", "Bearer 0123", TEXT] {
            let mut others = headers(&secret);
            others.insert(AUTHORIZATION, sent.parse().expect("a header"));
            assert_eq!(secret.check(&others), Err(Stranger::Secret), "{sent}");
        }
        let other = Secret::new(TEXT, "1 (b)").expect("a secret");
        assert_eq!(secret.check(&headers(&other)), Err(Stranger::Build("1 (a)".to_owned())));
        assert!(Secret::new("a\nb", "1").is_err());
        assert!(settings(&headers(&secret)).is_err(), "it has no settings");
    }
}
