//! The content of a link, for visitors with its token: [`content`], as JSON at `/shared/TOKEN.json` and its other
//! names. An insight or a dashboard with results, and nothing else of the project: no users, other documents, or
//! filters of a dashboard. A link may require a password first, see `unlock`.
//!
//! # Bounds
//!
//! The queries of all links to a project share the slots of one key. The content of a link is computed at most once in
//! [`KEPT`], and so is its page, compressed or not ([`page`]), so that many readers cost no more than one, and all of
//! them are sent the same memory. A link that is turned off or changed, and a changed document, take effect at once; a
//! changed insight of a dashboard with the next computation.

use std::time::Duration;

use hyper::Method;
use hyper::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::beside::beside;
use crate::budget::{Counted, Memory};
use crate::cors::{OWN_ORIGIN, RESOURCE_POLICY};
use crate::gzip::compressed_whole;
use crate::members::{Member, Members};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::documents::results::ResultsRequest;
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::tiles::Whole;
use crate::routes::documents::unlock::{CookiePath, Guesses};
use crate::routes::documents::{tiles, unlock};
use crate::routes::store::problem;
use weir_app::App;
use weir_base::clock::Clock;
use weir_base::error::Kind as ErrorKind;
use weir_event::json;
use weir_metadata::Metadata;
use weir_metadata::documents::shares::Share;
use weir_metadata::documents::{DocumentText, Kind};
use weir_web::frame::Theme;

/// Time to live of a cached response of a link.
const KEPT: Duration = Duration::from_secs(30);

/// Most bytes of all cached responses of links; they count in the memory budget of requests.
const KEPT_MAX_BYTES: u64 = 64 << 20;

/// Divisor of the memory budget of requests that gives the limit of the cache, if that is less.
const KEPT_DIVISOR: u64 = 4;

/// Most cached responses of all links.
const KEPT_MAX: usize = 1000;

/// Memory of a cached response besides its text.
const ANSWER_BYTES: u64 = 512;

/// Memory for rendering a page, as a multiple of the length of the JSON text: its parsed values, and the page.
const RENDERING_TIMES: usize = 6;

/// Longest token that is looked up, in bytes.
const TOKEN_MAX_BYTES: usize = 100;

/// Fields of a shared dashboard.
const OF_DASHBOARDS: [&str; 7] = [
    "id",
    "name",
    "description",
    "breakdown_colors",
    "data_color_theme_id",
    "last_refresh",
    "created_at",
];

/// Fields of a shared insight.
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

/// Fields of an insight that the setting `hideExtraDetails` omits.
const DETAILS: [&str; 3] = ["name", "derived_name", "description"];

/// Keeps search engines from indexing shared documents.
const ROBOTS: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-robots-tag"), HeaderValue::from_static("noindex"));

/// Browsers revalidate before they show a cached response, so that a link can be turned off.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// Responses behind a password are stored in no cache.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Cache key of a response: link, state of its settings and document, time span, and form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Version {
    token: String,
    share: i64,
    document: i64,
    /// The number of the time span, in units of [`KEPT`].
    span: u64,
    form: Form,
}

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// The text of a JSON object.
    Json,
    /// A page in HTML.
    Page(Theme, Encoding),
}

/// The content encoding of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Not compressed.
    Plain,
    /// Compressed by gzip.
    Gzip,
}

/// State of all links.
#[derive(Debug)]
pub struct Links {
    kept: Cache,
    /// Held while a page is rendered: only one page at a time, so that threads of the pool are free for other work.
    rendering: Semaphore,
    /// The limits on password guesses.
    pub guesses: Guesses,
}

impl Links {
    /// With an empty cache; `requests_max_bytes` is the memory budget of requests.
    pub fn new(clock: &Clock, requests_max_bytes: u64) -> Self {
        let most = KEPT_MAX_BYTES.min(requests_max_bytes / KEPT_DIVISOR);
        Self { kept: Cache::new(most), rendering: Semaphore::new(1), guesses: Guesses::new(clock) }
    }
}

/// Cached responses of links, within the limit of bytes.
struct Cache(quick_cache::sync::Cache<Version, Counted, Sizes>);

impl Cache {
    fn new(bytes_max: u64) -> Self {
        let mut options = OptionsBuilder::new();
        // One shard: with several, a long response would exceed the capacity of its shard and never be cached.
        options.shards(1).estimated_items_capacity(KEPT_MAX).weight_capacity(bytes_max);
        let Ok(options) = options.build() else {
            return Self(quick_cache::sync::Cache::with_weighter(KEPT_MAX, bytes_max, Sizes));
        };
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self(quick_cache::sync::Cache::with_options(options, Sizes, hasher, lifecycle))
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("kept", &self.0.len()).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Sizes;

impl Weighter<Version, Counted> for Sizes {
    fn weight(&self, _: &Version, answer: &Counted) -> u64 {
        u64::try_from(answer.bytes().len()).unwrap_or(u64::MAX).saturating_add(ANSWER_BYTES)
    }
}

/// `GET /shared/TOKEN.json`, also under `/shared_dashboard/` and `/embedded/`. `POST` sends the password of a link that
/// requires one; for other links it is the same as `GET`.
pub async fn json(
    app: &App,
    links: &Links,
    file: &str,
    request: Request,
) -> Result<Response, Problem> {
    let token = file.strip_suffix(".json").ok_or_else(unknown)?;
    let share = find(&app.node.metadata, token).await?;
    let is_locked = share.is_password_required;
    if is_locked && request.method == Method::POST {
        let place = CookiePath::of(app, &request);
        let pass = unlock::attempt(app, &links.guesses, &share, request).await?;
        return Ok(secured(place.told(&share, &pass), is_locked));
    }
    if !unlock::is_passed(app, &share, &request).await? {
        return Err(unlock::locked());
    }
    let text = content(app, links, &share, &request.memory()).await?;
    let kind = if request.path().starts_with("/embedded/") { "embed" } else { "scene" };
    let mut head = Map::from_iter([("type".to_owned(), json!(kind))]);
    head.extend(share.settings.into_iter().filter(|(_, value)| *value == Value::Bool(true)));
    // The text is an object; `head` replaces its opening brace.
    let mut head = Value::Object(head).to_string();
    head.pop();
    head.push(',');
    Ok(secured(Response::counted_json_after(head, &text.after(1)), is_locked))
}

/// The response with headers for browsers and caches. A response behind a password depends on a cookie: it is only for
/// pages of this server, and for no cache.
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
/// 404 if no enabled link has the token.
pub async fn find(metadata: &Metadata, token: &str) -> Result<Share, Problem> {
    if token.len() > TOKEN_MAX_BYTES {
        return Err(unknown());
    }
    metadata.share_by_token(token).await.map_err(problem)
}

/// The text of a JSON object with the content of a link: `accessToken`, and `dashboard` or `insight`. The caller has
/// checked that the visitor has passed the password.
///
/// # Errors
///
/// 404 if the document is deleted.
pub(in crate::routes) async fn content(
    app: &App,
    links: &Links,
    share: &Share,
    memory: &Memory,
) -> Result<Counted, Problem> {
    let (document, version) = current(app, share).await?;
    let making = Box::pin(async {
        let Whole { body, held } = told(app, share, &document, memory).await?;
        let answer = memory.reservation();
        let write = move || {
            let mut text = Vec::new();
            body.write(&mut text).map_err(|error| Problem::of(ErrorKind::Internal, &error))?;
            drop((body, held));
            Ok::<_, Problem>(answer.counted(text)?)
        };
        beside(&app.node.cpu, write).await
    });
    links.kept.0.get_or_insert_async(&version, making).await
}

/// The page of a link, which `render` makes from the JSON of [`content`], outside the threads of sockets.
///
/// # Errors
///
/// As of [`content`]; 503 if the memory budget is used up.
pub(in crate::routes) async fn page(
    app: &App,
    (links, memory): (&Links, &Memory),
    share: &Share,
    (theme, encoding): (Theme, Encoding),
    render: fn(Theme, &Map<String, Value>, Value) -> String,
) -> Result<Counted, Problem> {
    let (_, version) = current(app, share).await?;
    let version = Version { form: Form::Page(theme, encoding), ..version };
    let making = Box::pin(async {
        let text = content(app, links, share, memory).await?;
        let turn = links.rendering.acquire().await;
        let turn = turn.map_err(|error| Problem::of(ErrorKind::Unavailable, &error))?;
        let mut held = memory.reservation();
        held.hold(text.bytes().len().saturating_mul(RENDERING_TIMES))?;
        let settings = share.settings.clone();
        let make = move || {
            let unreadable = |error| Problem::of(ErrorKind::Internal, &error);
            let told = json::restore(text.bytes()).map_err(unreadable)?;
            let html = render(theme, &settings, told);
            let page = match encoding {
                Encoding::Plain => html.into_bytes(),
                Encoding::Gzip => compressed_whole(html.as_bytes())
                    .map_err(|error| Problem::of(ErrorKind::Internal, &error))?,
            };
            Ok::<_, Problem>(held.counted(page)?)
        };
        let made = beside(&app.node.cpu, make).await;
        drop(turn);
        made
    });
    links.kept.0.get_or_insert_async(&version, making).await
}

/// The document of a link, and the cache key of its current JSON.
async fn current(app: &App, share: &Share) -> Result<(DocumentText, Version), Problem> {
    let document = app.node.metadata.document_text(share.project, share.kind, share.document).await;
    let document = document.map_err(problem)?;
    if document.head.deleted {
        return Err(unknown());
    }
    let version = Version {
        token: share.token.clone(),
        share: share.updated_at.0,
        document: document.head.updated_at.0,
        span: app.node.clock.monotonic().as_secs() / KEPT.as_secs(),
        form: Form::Json,
    };
    Ok((document, version))
}

/// The JSON object with the content of a link.
async fn told(
    app: &App,
    share: &Share,
    document: &DocumentText,
    memory: &Memory,
) -> Result<Whole, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let project = snapshot.project(share.project).cloned().ok_or_else(unknown)?;
    let app = app.for_links(share.project);
    let viewer = Viewer { project, user: None, key: None };
    let whole =
        match tiles::whole(&app, document, &viewer, (&ResultsRequest::computed(), memory)).await {
            Ok(whole) => whole,
            Err(problem) => {
                if let Some(cause) = problem.cause() {
                    tracing::warn!(cause, "a shared insight has no result");
                }
                tiles::whole(&app, document, &viewer, (&ResultsRequest::kept(), memory)).await?
            }
        };
    let Whole { mut body, held } = whole;
    let (name, told) = match document.head.kind {
        Kind::Dashboard => {
            let tiles = match body.remove("tiles") {
                Some(Member::List(tiles)) => tiles.into_iter().map(tile).collect(),
                _ => Vec::new(),
            };
            let mut told = body.part(&OF_DASHBOARDS);
            told.set("tiles", Member::List(tiles));
            ("dashboard", told)
        }
        _ => {
            let mut told = body.part(&OF_INSIGHTS);
            if share.settings.get("hideExtraDetails") == Some(&Value::Bool(true)) {
                told.retain(|name| !DETAILS.contains(&name));
            }
            ("insight", told)
        }
    };
    let mut body = Members::default();
    body.set("accessToken", json!(share.token));
    body.set(name, Member::Object(told));
    Ok(Whole { body, held })
}

/// A tile of a shared dashboard. Details of errors are only for users of the project.
fn tile(mut tile: Members) -> Members {
    let insight = match tile.remove("insight") {
        Some(Member::Object(insight)) => Member::Object(insight.part(&OF_INSIGHTS)),
        _ => Member::Value(Value::Null),
    };
    let kind = tile.value("error").and_then(|error| error.get("type"));
    let error = kind.map(|kind| json!({"type": kind, "message": "There is no result."}));
    let mut told = tile.part(&["id", "text", "color", "layouts", "is_cached", "last_refresh"]);
    told.set("insight", insight);
    told.set("error", error.unwrap_or_default());
    told
}

fn unknown() -> Problem {
    Problem::not_found("Not found.")
}
