//! Requests of an export to the API of a project.

use std::io::Write;

use bytes::Bytes;
use hyper::Method;
use serde_json::json;

use crate::cli::client::{Server, TlsArgs, next, whole};

/// The API of a project.
#[derive(Clone, Debug)]
pub(super) struct Api {
    server: Server,
    prefix: String,
}

impl Api {
    pub(super) fn new(url: &str, key: &str, project: i64, tls: &TlsArgs) -> anyhow::Result<Self> {
        let prefix = format!("api/projects/{project}/");
        Ok(Self { server: Server::new(url, key, tls)?, prefix })
    }

    /// Writes the answer to a query as it comes.
    ///
    /// # Errors
    ///
    /// The server refuses the query, the answer breaks off, or it cannot be written.
    pub(super) async fn query(
        &self,
        sql: &str,
        format: &str,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let (path, body) = (self.path("query/"), json!({"query": sql, "format": format}));
        let response = self.server.send(Method::POST, &path, Some(&body)).await?;
        let mut body = response.into_body();
        while let Some(data) = next(&mut body).await? {
            out.write_all(&data)?;
        }
        Ok(out.flush()?)
    }

    /// The answer of an endpoint.
    ///
    /// # Errors
    ///
    /// The server refuses, or the answer is too long.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        whole(self.server.send(Method::GET, &self.path(path), None).await?).await
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}
