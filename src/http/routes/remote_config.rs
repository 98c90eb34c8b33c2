//! `/array/<token>/...`: files that browsers and mobile SDKs load at start. The settings as JSON and as a script, and
//! the SDK itself with the settings prepended.

use bytes::Bytes;
use hyper::StatusCode;

use crate::conditional;
use crate::conditional::Tag;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::static_files;
use crate::routes::static_files::{SCRIPT, Script};
use weir_app::App;
use weir_base::error::Kind;
use weir_wire::remote_config::{Asker, RemoteConfig};

/// Short, so that the first flag of a project is visible soon; the tag makes revalidation cheap.
const CACHE: &str = "public, max-age=60";

/// File of the SDK in the directory of its scripts.
const SDK: &str = "array.js";

/// The requested file of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// `config`: the settings as JSON.
    Config,
    /// `config.js`: the settings as a script.
    ConfigScript,
    /// `array.js`: the settings and the SDK, as one script.
    Sdk,
}

/// Answers `/array/<token>/<file>`; 404 if no project has the token.
pub async fn file(
    app: &App,
    token: &str,
    file: File,
    request: &Request,
) -> Result<Response, Problem> {
    let config = config(app, token)?;
    let text = match file {
        File::Config => config.json(token),
        File::ConfigScript | File::Sdk => config.script(token),
    };
    let text = text.map_err(|error| Problem::of(Kind::Internal, &error))?;
    if file == File::Sdk {
        return sdk(app, text, request).await;
    }
    let tag = Tag::of(text.as_bytes());
    let response = || match file {
        File::Config => Response::json_bytes(StatusCode::OK, text),
        File::ConfigScript | File::Sdk => Response::bytes(StatusCode::OK, SCRIPT, text),
    };
    Ok(conditional::respond(&request.headers, &tag, CACHE, response))
}

fn config(app: &App, token: &str) -> Result<RemoteConfig, Problem> {
    let metadata = app.node.metadata.snapshot();
    let project = metadata.project_by_token(token);
    let project = project.ok_or_else(|| Problem::not_found("No project has this API key."))?;
    let has_flags = metadata.flag_set(project.id).is_some();
    Ok(RemoteConfig { has_flags, asker: Asker::Current })
}

/// The settings come first, so that the SDK finds them when it starts.
async fn sdk(app: &App, config: String, request: &Request) -> Result<Response, Problem> {
    let path = static_files::directory(app)?.join(SDK);
    let script = Script::open(&path).await?.ok_or_else(|| static_files::missing(SDK))?;
    let sum = u64::from(crc32c::crc32c(config.as_bytes()));
    let tag = Tag::of_parts(&[script.modified_nanos, script.len, sum]);
    let send = || script.send(Bytes::from(config));
    Ok(conditional::respond(&request.headers, &tag, CACHE, send))
}
