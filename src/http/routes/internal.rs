//! Internal endpoints, for commands of the same user that find a running server on their data directory.
//! The secret in the lock file, which only that user can read, proves their access to the directory. Servers that follow this
//! one have another secret, that of its lease.

use hyper::StatusCode;
use serde_json::json;

use crate::auth;
use crate::fields::Fields;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::{mcp, query, store};
use weir_app::App;
use weir_app::flush::FlushError;
use weir_metadata::accounts::ProjectPatch;
use weir_metadata::secrets::KeyHash;

/// The internal endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// `/_internal/query`: SQL, for `weir query`.
    Query,
    /// `/_internal/flush`: flushes all events to files, for `weir flush`.
    Flush,
    /// `/_internal/flush-persons`: the same of persons and their distinct ids.
    FlushPersons,
    /// `/_internal/overview`: contents of the data directory, for `weir inspect`.
    Overview,
    /// `/_internal/mcp`: messages of an assistant, for `weir mcp`.
    Mcp,
    /// `/_internal/project`: makes a project, for `weir load`.
    Project,
    /// `/_internal/position`: the newest durable record, for servers that follow this one.
    Position,
    /// `/_internal/session`: a connection of the PostgreSQL port, which another node of a cluster passes on.
    Session,
    /// `/_internal/cancel-session`: cancels what such a connection runs.
    CancelSession,
}

impl Internal {
    /// The endpoint of this path, with or without a slash at the end. All take POST.
    pub fn find(path: &str) -> Option<Self> {
        match path.strip_suffix('/').unwrap_or(path).strip_prefix("/_internal/")? {
            "query" => Some(Self::Query),
            "flush" => Some(Self::Flush),
            "flush-persons" => Some(Self::FlushPersons),
            "overview" => Some(Self::Overview),
            "mcp" => Some(Self::Mcp),
            "project" => Some(Self::Project),
            "position" => Some(Self::Position),
            "session" => Some(Self::Session),
            "cancel-session" => Some(Self::CancelSession),
            _ => None,
        }
    }

    /// Name in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Query => "internal_query",
            Self::Flush => "internal_flush",
            Self::FlushPersons => "internal_flush_persons",
            Self::Overview => "internal_overview",
            Self::Mcp => "internal_mcp",
            Self::Project => "internal_project",
            Self::Position => "internal_position",
            Self::Session => "internal_session",
            Self::CancelSession => "internal_cancel_session",
        }
    }
}

/// Serves a command that sends the secret.
///
/// # Errors
///
/// 401 without the secret; else the errors of the endpoint.
pub async fn internal(
    app: &App,
    secret: &str,
    what: Internal,
    request: Request,
) -> Result<Response, Problem> {
    check(secret, what, &request)?;
    match what {
        Internal::Query => query::internal(app, request).await,
        Internal::Flush => flush(std::slice::from_ref(app)).await,
        Internal::Mcp => mcp::internal(app, secret, request).await,
        Internal::Project => project(app, request).await,
        Internal::FlushPersons => {
            let flushed = app.shard.flush_persons().await;
            flushed.map_err(|error| Problem::of(error.kind(), &error))?;
            Ok(Response::json(StatusCode::OK, &json!({})))
        }
        Internal::Position => {
            Ok(Response::text(StatusCode::OK, app.shard.pipeline.durable().to_string()))
        }
        // Of a node of a cluster alone, which answers them itself.
        Internal::Session | Internal::CancelSession => Err(Problem::not_found("Not found.")),
        Internal::Overview => {
            let overview =
                app.shard.overview().await.map_err(|error| Problem::of(error.kind(), &error))?;
            Ok(Response::json(StatusCode::OK, &overview))
        }
    }
}

/// Flushes the shards of a process, for a command that sends the secret.
///
/// # Errors
///
/// As of [`internal`].
pub async fn flush_all(apps: &[App], secret: &str, request: &Request) -> Result<Response, Problem> {
    check(secret, Internal::Flush, request)?;
    flush(apps).await
}

fn check(secret: &str, what: Internal, request: &Request) -> Result<(), Problem> {
    let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let is_allowed = match what {
        Internal::Position | Internal::Session | Internal::CancelSession => request.is_of_server(),
        _ => bearer.is_some_and(|given| is_same(given, secret)),
    };
    if is_allowed { Ok(()) } else { Err(Problem::not_authenticated()) }
}

/// Compares hashes, so that the time does not reveal how much of a guess was right.
fn is_same(given: &str, secret: &str) -> bool {
    KeyHash::of(given) == KeyHash::of(secret)
}

async fn flush(apps: &[App]) -> Result<Response, Problem> {
    let problem = |error: FlushError| Problem::of(error.kind(), &error);
    let (mut files, mut rows) = (0, 0_u64);
    for app in apps {
        let version = app.shard.flush().await.map_err(problem)?;
        files += version.files.len();
        rows += version.files.iter().map(|file| file.rows).sum::<u64>();
    }
    let answer = json!({"files": files, "rows": rows});
    Ok(Response::json(StatusCode::OK, &answer))
}

/// Makes a project with the name of the body, in the organization of the first user.
async fn project(app: &App, request: Request) -> Result<Response, Problem> {
    let mut fields = Fields::read(request).await?;
    let name = fields.text("name")?.unwrap_or_default();
    let user =
        app.node.metadata.snapshot().users().find(|user| !user.is_removed()).map(|user| user.id);
    let user = user.ok_or_else(|| Problem::not_found("There is no user."))?;
    let metadata = app.node.metadata.clone();
    let write = async move {
        metadata.create_project(user, &name, ProjectPatch::default(), &auth::seed()).await
    };
    let made = store::write(app, "create-project", write).await?;
    let answer = json!({"id": made.id.0, "name": made.name, "api_token": made.token});
    Ok(Response::json(StatusCode::CREATED, &answer))
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn only_the_secret_is_the_secret() {
        for (given, expected) in
            [("abc", true), ("abd", false), ("ab", false), ("abcd", false), ("", false)]
        {
            assert_eq!(is_same(given, "abc"), expected, "{given}");
        }
    }
}
