//! What a link leads to, for whoever has its token: [`content`], as JSON at `/shared/TOKEN.json` and its other names. An
//! insight or a dashboard with results, and nothing else of the project: no users, other documents, or filters of a
//! dashboard. A link may ask for a password first, see `unlock`.
//!
//! # Bounds
//!
//! The queries of all links to a project share the slots of one key. What a link shows is computed at most once in
//! [`KEPT`], so that many readers cost no more than one; a link that is turned off or changed, and a changed document,
//! show that at once, a changed insight of a dashboard with the next computation.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;
use hyper::header::HeaderName;
use hyper::header::HeaderValue;
use quick_cache::Weighter;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::clock::Clock;
use crate::http::cors::OWN_ORIGIN;
use crate::http::cors::RESOURCE_POLICY;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::documents::results::Asked;
use crate::http::routes::documents::rights::Viewer;
use crate::http::routes::documents::tiles;
use crate::http::routes::documents::unlock;
use crate::http::routes::documents::unlock::Guesses;
use crate::http::routes::documents::unlock::Place;
use crate::http::routes::store::problem;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;
use crate::metadata::documents::shares::Share;

/// How long what a link shows is shown again.
const KEPT: Duration = Duration::from_secs(30);

/// Most bytes of what is kept of all links.
const KEPT_MAX_BYTES: u64 = 64 << 20;

/// Most links of which something is kept.
const KEPT_MAX: usize = 1000;

/// Memory of a kept answer besides its text.
const ANSWER_BYTES: u64 = 512;

/// Longest token that is looked up, in bytes.
const TOKEN_MAX_BYTES: usize = 100;

/// What a shared dashboard tells of itself.
const OF_DASHBOARDS: [&str; 7] = [
    "id",
    "name",
    "description",
    "breakdown_colors",
    "data_color_theme_id",
    "last_refresh",
    "created_at",
];

/// What a shared insight tells of itself.
const OF_INSIGHTS: [&str; 14] = [
    "id",
    "short_id",
    "name",
    "derived_name",
    "description",
    "query",
    "filters",
    "result",
    "columns",
    "types",
    "hasMore",
    "is_cached",
    "last_refresh",
    "timezone",
];

/// What is left out of an insight with the setting `hideExtraDetails`.
const DETAILS: [&str; 3] = ["name", "derived_name", "description"];

/// Search engines do not list what was shared with some.
const ROBOTS: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-robots-tag"), HeaderValue::from_static("noindex"));

/// A turned off link is not shown from a browser's cache.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// What is behind a password stays in no cache.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What a kept answer is right for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Version {
    token: String,
    share: i64,
    document: i64,
    /// The number of the time span.
    span: u64,
}

/// State of all links.
#[derive(Debug)]
pub struct Links {
    kept: Cache,
    /// The limits on guesses at their passwords.
    pub guesses: Guesses,
}

impl Links {
    /// Nothing is kept yet.
    pub fn new(clock: &Clock) -> Self {
        Self { kept: Cache::default(), guesses: Guesses::new(clock) }
    }
}

/// What links showed last, as far as it fits.
struct Cache(quick_cache::sync::Cache<Version, Bytes, Sizes>);

impl Default for Cache {
    fn default() -> Self {
        Self(quick_cache::sync::Cache::with_weighter(KEPT_MAX, KEPT_MAX_BYTES, Sizes))
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("kept", &self.0.len()).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Sizes;

impl Weighter<Version, Bytes> for Sizes {
    fn weight(&self, _: &Version, text: &Bytes) -> u64 {
        u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(ANSWER_BYTES)
    }
}

/// `GET /shared/TOKEN.json`, also under `/shared_dashboard/` and `/embedded/`. `POST` gives the password of a link
/// that asks for one; on others it is as `GET`.
pub async fn json(
    app: &App,
    links: &Links,
    file: &str,
    request: Request,
) -> Result<Response, Problem> {
    let token = file.strip_suffix(".json").ok_or_else(unknown)?;
    let share = find(app, token).await?;
    let is_locked = share.is_password_required;
    if is_locked && request.method == Method::POST {
        let place = Place::of(app, &request);
        let pass = unlock::attempt(app, &links.guesses, &share, request).await?;
        return Ok(secured(place.told(&share, &pass), is_locked));
    }
    if !unlock::is_passed(app, &share, &request).await? {
        return Err(unlock::locked());
    }
    let text = content(app, links, &share).await?;
    // The text is an object, which this one begins.
    let kind = if request.path().starts_with("/embedded/") { "embed" } else { "scene" };
    let mut head = Map::from_iter([("type".to_owned(), json!(kind))]);
    head.extend(share.settings.into_iter().filter(|(_, value)| *value == Value::Bool(true)));
    let mut body = Value::Object(head).to_string();
    body.pop();
    body.push(',');
    let mut body = body.into_bytes();
    body.extend_from_slice(text.get(1..).unwrap_or_default());
    let response = Response::json_bytes(StatusCode::OK, body);
    Ok(secured(response, is_locked))
}

/// The same with what browsers and others may do with it. What depends on a cookie is for pages of this server only,
/// and for no cache.
pub fn secured(response: Response, is_locked: bool) -> Response {
    let mut response = response.with_header(ROBOTS.0, ROBOTS.1);
    response.headers.insert(CACHE_CONTROL, if is_locked { NO_STORE } else { NO_CACHE });
    if is_locked {
        response.headers.insert(RESOURCE_POLICY, OWN_ORIGIN);
    }
    response
}

/// The enabled link with a token.
///
/// # Errors
///
/// 404 without one.
pub async fn find(app: &App, token: &str) -> Result<Share, Problem> {
    if token.len() > TOKEN_MAX_BYTES {
        return Err(unknown());
    }
    app.metadata.share_by_token(token).await.map_err(problem)
}

/// The text of a JSON object with what a link leads to: `accessToken`, and `dashboard` or `insight`. The caller has
/// checked that whoever asks is let in.
///
/// # Errors
///
/// 404 if it leads nowhere.
pub async fn content(app: &App, links: &Links, share: &Share) -> Result<Bytes, Problem> {
    let place = (share.project, share.kind, share.document);
    let document = app.metadata.document(place.0, place.1, place.2).await.map_err(problem)?;
    if document.deleted {
        return Err(unknown());
    }
    let version = Version {
        token: share.token.clone(),
        share: share.updated_at.0,
        document: document.updated_at.0,
        span: app.clock.monotonic().as_secs() / KEPT.as_secs(),
    };
    let making = Box::pin(async {
        let told = told(app, share, &document).await?;
        Ok::<_, Problem>(Bytes::from(told.to_string()))
    });
    links.kept.0.get_or_insert_async(&version, making).await
}

/// What a link tells.
async fn told(app: &App, share: &Share, document: &Document) -> Result<Value, Problem> {
    let snapshot = app.metadata.snapshot();
    let project = snapshot.project(share.project).ok_or_else(unknown)?;
    let app = app.for_links(share.project);
    let viewer = Viewer { project, user: None, key: None };
    let whole = match tiles::whole(&app, document, viewer, &Asked::computed()).await {
        Ok(whole) => whole,
        Err(problem) => {
            if let Some(cause) = problem.cause() {
                tracing::warn!(cause, "a shared insight has no result");
            }
            tiles::whole(&app, document, viewer, &Asked::kept()).await?
        }
    };
    let (name, told) = match document.kind {
        Kind::Dashboard => {
            let mut told = part(&whole, &OF_DASHBOARDS);
            let tiles = whole.get("tiles").and_then(Value::as_array).into_iter().flatten();
            let tiles: Vec<Value> = tiles.map(tile).collect();
            told.insert("tiles".to_owned(), Value::Array(tiles));
            ("dashboard", told)
        }
        _ => {
            let mut told = part(&whole, &OF_INSIGHTS);
            if share.settings.get("hideExtraDetails") == Some(&Value::Bool(true)) {
                told.retain(|name, _| !DETAILS.contains(&name.as_str()));
            }
            ("insight", told)
        }
    };
    Ok(json!({"accessToken": share.token, name: told}))
}

/// A tile of a shared dashboard. Why an insight has no result is for the people of the project.
fn tile(tile: &Value) -> Value {
    let mut told = part(tile, &["id", "text", "color", "layouts", "is_cached", "last_refresh"]);
    let insight = tile.get("insight").filter(|insight| insight.is_object());
    let insight = insight.map(|insight| Value::Object(part(insight, &OF_INSIGHTS)));
    told.insert("insight".to_owned(), insight.unwrap_or_default());
    let kind = tile.get("error").and_then(|error| error.get("type"));
    let error = kind.map(|kind| json!({"type": kind, "message": "There is no result."}));
    told.insert("error".to_owned(), error.unwrap_or_default());
    Value::Object(told)
}

fn part(whole: &Value, names: &[&str]) -> Map<String, Value> {
    let one = |name: &&str| Some(((*name).to_owned(), whole.get(*name)?.clone()));
    names.iter().filter_map(one).collect()
}

fn unknown() -> Problem {
    Problem::not_found("Not found.")
}
