//! The API of one project, for commands that ask a server with a personal key: [`ProjectArgs`] and [`ProjectApi`].

use std::fmt;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde_json::Value;

use crate::cli::client::{Server, TlsArgs, whole};

/// Options that name a project of a server.
#[derive(Clone, clap::Args)]
pub struct ProjectArgs {
    /// URL of the server
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    /// Personal API key
    #[arg(long, env = "WEIR_PERSONAL_API_KEY", hide_env_values = true)]
    pub key: String,
    /// Id of the project
    #[arg(long, default_value_t = 1)]
    pub project: i64,
    /// For https.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Without the key.
impl fmt::Debug for ProjectArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ProjectArgs");
        shown.field("url", &self.url).field("project", &self.project).finish_non_exhaustive()
    }
}

/// The API of a project.
#[derive(Clone, Debug)]
pub(super) struct ProjectApi {
    server: Server,
    prefix: String,
}

impl ProjectApi {
    /// The API of the project that options name.
    ///
    /// # Errors
    ///
    /// The URL or the key cannot be sent.
    pub(super) fn new(args: &ProjectArgs) -> anyhow::Result<Self> {
        let prefix = format!("api/projects/{}/", args.project);
        Ok(Self { server: Server::new(&args.url, &args.key, &args.tls)?, prefix })
    }

    /// Sends a request to a path within the project.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or refuses; the message is the server's.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        self.server.send(method, &format!("{}{path}", self.prefix), body).await
    }

    /// The answer of an endpoint.
    ///
    /// # Errors
    ///
    /// The server refuses, or the answer is too long.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        whole(self.send(Method::GET, path, None).await?).await
    }
}
