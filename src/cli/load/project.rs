//! Makes the project that the events are sent to: over the API with a personal key, or at the server that runs on a data
//! directory of this machine, with its secret.

use anyhow::Context;
use hyper::Method;
use serde_json::{Value, json};

use crate::cli::client::{Server, whole};
use crate::cli::load::LoadArgs;
use crate::cli::local;

/// A new project.
#[derive(Debug)]
pub(super) struct Made {
    /// Its id.
    pub(super) id: i64,
    /// The token to send with.
    pub(super) token: String,
    /// The server that made it.
    pub(super) url: String,
}

/// Makes a project with this name.
///
/// # Errors
///
/// There is neither a key nor a server on the data directory, or the server refuses it.
pub(super) async fn make(args: &LoadArgs, name: &str) -> anyhow::Result<Made> {
    let (url, path, key) = match &args.key {
        Some(key) => (args.url.clone(), "api/projects/", key.clone()),
        None => {
            let advice = "name the data directory of one, or a personal API key with --key, to make a project";
            let server = local::server(&args.data_dir, advice)?;
            (server.url, "_internal/project", server.secret)
        }
    };
    let server = Server::new(&url, &key, &args.tls)?;
    let answer = server.send(Method::POST, path, Some(&json!({"name": name}))).await?;
    let answer: Value = serde_json::from_slice(&whole(answer).await?).unwrap_or_default();
    let id = answer.get("id").and_then(Value::as_i64);
    let token = answer.get("api_token").and_then(Value::as_str);
    let (id, token) = id.zip(token).with_context(|| format!("{url} answers with no project"))?;
    Ok(Made { id, token: token.to_owned(), url })
}
