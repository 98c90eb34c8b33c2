//! The pages: [`table`] lists every page with its required scope. This file authenticates the visitor, checks the
//! rights, and sends the page that the function returns within the frame, whose head is sent before anything is
//! computed.

pub mod cohort_editor;
pub mod cohorts;
pub mod definitions;
pub mod deletions;
pub mod events;
mod files;
mod flag_calls;
pub mod flag_editor;
pub mod flags;
pub mod health;
pub mod home;
pub mod insights;
pub mod live;
pub mod members;
pub mod onboarding;
mod origins;
pub mod persons;
pub mod settings;
pub mod shared;
mod sign_in;
pub mod sql;
pub mod table;
pub mod visit;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{BoxStream, FuturesOrdered, FuturesUnordered};
use futures::{StreamExt, stream};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, header};
use maud::{Markup, html};

use crate::auth::Principal;
use crate::cookies::{Cookie, cookie};
use crate::cors::{OWN_ORIGIN, RESOURCE_POLICY};
use crate::gzip::{compressed, compressed_promptly, takes_gzip};
use crate::lookup::Lookup;
use crate::request::Request;
use crate::response::{Problem, Response, StreamError};
use crate::routes::pages::sign_in::Identity;
use crate::routes::pages::table::Located;
use crate::routes::pages::visit::{Desk, Page, Sent, Visit, apart, see_other};
use crate::{auth, revocation};
use weir_app::App;
use weir_metadata::accounts::Project;
use weir_metadata::snapshot::Snapshot;
use weir_metadata::standing::Standing;
use weir_query::kernel::engine::Engine;
use weir_web::frame::{Frame, ProjectLink, Theme, door, keys};
use weir_web::{assets, parts};

/// The cookie with the theme.
const THEME: &str = "weir_theme";

/// Lifetime of the theme cookie, and of files whose names change with their content, in seconds: a year.
const YEAR_SECONDS: u64 = 365 * 24 * 60 * 60;

/// Most projects in the list for switching.
const PROJECTS_MAX: usize = 100;

/// No inline script or style, and nothing from other origins, because names of events are untrusted.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// A page, or an asset of pages.
#[derive(Debug)]
pub enum Route {
    /// A page of a project.
    Page(Located),
    /// A style sheet or script.
    Asset,
    /// `/login`.
    SignIn,
    /// `/logout`.
    SignOut,
    /// `/theme`.
    Theme,
    /// `/help/keys`.
    Keys,
    /// A path below a project that no page has.
    Missing,
    /// The path has pages for other methods, which are listed here.
    WrongMethod(String),
}

impl Route {
    /// Name in metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Page(located) => located.line.path,
            Self::Asset => "/assets/",
            Self::SignIn => "/login",
            Self::SignOut => "/logout",
            Self::Theme => "/theme",
            Self::Keys => "/help/keys",
            Self::Missing => "none",
            Self::WrongMethod(_) => "wrong_method",
        }
    }
}

/// Finds the page of a path; `None` for other paths.
pub fn find(method: &Method, path: &str) -> Option<Route> {
    let wrong = |allowed: &str| Some(Route::WrongMethod(format!("{allowed}, OPTIONS")));
    let (is_get, is_post) = (method == Method::GET, method == Method::POST);
    match path.strip_suffix('/').unwrap_or(path) {
        "/login" if is_get || is_post => Some(Route::SignIn),
        "/login" => wrong("GET, POST, HEAD"),
        "/logout" if is_post => Some(Route::SignOut),
        "/theme" if is_post => Some(Route::Theme),
        "/logout" | "/theme" => wrong("POST"),
        "/help/keys" if is_get => Some(Route::Keys),
        "/help/keys" => wrong("GET, HEAD"),
        _ if path.starts_with(assets::PREFIX) && is_get => Some(Route::Asset),
        _ if path.starts_with(assets::PREFIX) => wrong("GET, HEAD"),
        path => match table::find(method.as_str(), path) {
            Lookup::Found(located) => Some(Route::Page(located)),
            Lookup::WrongMethod(allowed) => Some(Route::WrongMethod(allowed)),
            Lookup::Nothing if path.starts_with("/project/") => Some(Route::Missing),
            Lookup::Nothing => None,
        },
    }
}

/// Responds to a request for a page.
pub async fn answer(app: &App, desk: &Arc<Desk>, route: Route, request: Request) -> Response {
    let theme = theme_of(&request.headers);
    match route {
        Route::Asset => asset(&request),
        Route::Theme => {
            secured(choose_theme(request).await.unwrap_or_else(|problem| refusal(theme, &problem)))
        }
        Route::SignIn => secured(sign_in::sign_in(app, desk, theme, request).await),
        Route::SignOut => {
            let out = sign_in::sign_out(app, &request).await;
            secured(out.unwrap_or_else(|problem| refusal(theme, &problem)))
        }
        Route::Keys => secured(Response::bytes(StatusCode::OK, HTML, keys(theme).0)),
        Route::Missing => secured(refusal(theme, &Problem::not_found("There is no such page."))),
        Route::WrongMethod(allow) => {
            let problem = Problem::method_not_allowed(&request.method, &allow);
            let mut response = refusal(theme, &problem);
            if let Ok(allow) = HeaderValue::try_from(allow) {
                response.headers.insert(header::ALLOW, allow);
            }
            secured(response)
        }
        Route::Page(located) => secured(page(app, desk, located, request).await),
    }
}

/// `/` for browsers: redirects to the home page, or to the sign-in.
pub async fn entrance(app: &App, request: &Request) -> Response {
    let target = match sign_in::identity(app, request).await {
        Ok(Some(_)) => "/project/@current/home",
        _ => "/login",
    };
    let answer = see_other(target).unwrap_or_else(Response::from);
    secured(answer.with_header(header::VARY, HeaderValue::from_static("accept")))
}

async fn page(app: &App, desk: &Arc<Desk>, located: Located, request: Request) -> Response {
    let theme = theme_of(&request.headers);
    let identity = match sign_in::identity(app, &request).await {
        Ok(Some(identity)) => identity,
        Ok(None) => return sign_in::to_sign_in(&request),
        Err(problem) => return refusal(theme, &problem),
    };
    if request.method == Method::POST
        && identity.session.is_some()
        && let Err(problem) = sign_in::check_origin(&request)
    {
        return refusal(theme, &problem);
    }
    let snapshot = app.node.metadata.snapshot();
    let Identity { asker, session } = identity;
    let projects = projects(&snapshot, &asker);
    let is_current = located.project == auth::CURRENT;
    let principal = match auth::principal(&snapshot, &request, asker, &located.project) {
        Ok(principal) => principal,
        Err(problem) => return refusal(theme, &problem),
    };
    if is_current {
        let path = format!("/project/{}/{}", principal.project.id, located.rest);
        return see_other(&path).unwrap_or_else(Response::from);
    }
    let frame = frame(&principal, projects, (&located, session.is_some(), theme));
    let problem = |problem: &Problem| framed(&frame, failure(problem), None, None);
    if let Err(missing) = auth::require(&principal.key, located.line.scope) {
        return problem(&missing);
    }
    let limited = app.node.throttle.check(principal.key.id, true);
    if let Err(early) = limited {
        return problem(&early.into());
    }
    let encoding = request.headers.get(header::ACCEPT_ENCODING).cloned();
    let standing = Standing::of(&app.node.metadata, &principal.key, session.as_ref());
    let standing = standing.within(Some(principal.project.id));
    let app = app.on_behalf_of(principal.key.id, standing.clone());
    let engine = app.engine.clone();
    let visit = Visit::new(app, principal, (located.parameters, session), request, desk);
    let answering = (located.line.run)(visit);
    let sent = match located.line.method {
        "GET" => revocation::answered(&standing, answering).await,
        _ => answering.await,
    };
    match sent {
        Ok(Sent::Page(page)) => framed(&frame, page, encoding.as_ref(), Some((&engine, &standing))),
        Ok(Sent::Other(response)) => revocation::streamed(&standing, response),
        Err(error) => problem(&error),
    }
}

/// The projects that the caller may switch to; empty without the right to read projects.
fn projects(snapshot: &Snapshot, asker: &auth::Asker) -> Vec<ProjectLink> {
    if !asker.key.grants("project:read") {
        return Vec::new();
    }
    let own = snapshot.projects().filter(|project| asker.key.may_use(project));
    own.take(PROJECTS_MAX).map(|project| place(project)).collect()
}

fn place(project: &Project) -> ProjectLink {
    ProjectLink { id: project.id.0, name: project.name.clone() }
}

fn frame(
    principal: &Principal,
    projects: Vec<ProjectLink>,
    (located, has_session, theme): (&Located, bool, Theme),
) -> Frame {
    let project = place(&principal.project);
    let user = principal.user.email.clone();
    Frame { project, projects, path: located.rest.clone(), user, has_session, theme }
}

/// The title of an error page.
fn title_of(problem: &Problem) -> &'static str {
    match problem.status() {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::BAD_REQUEST => "This cannot be answered",
        _ => "The request failed",
    }
}

/// The page for an error.
fn failure(problem: &Problem) -> Page {
    let content = html! {
        (parts::failed(problem.detail()))
        @if problem.status() == StatusCode::NOT_FOUND {
            p { "It may have been deleted, or belong to another project. The navigation leads to all that there is." }
        }
        @if problem.status() == StatusCode::FORBIDDEN {
            p { "The key that you signed in with does not grant this. Sign in with another one, or by a link of "
                code { "weir login" } "." }
        }
    };
    Page { status: problem.status(), ..Page::new(title_of(problem), content) }
}

/// A page in its frame. The parts that are computed later follow; all of them start at once, and end with the
/// credential of the visitor (`asked`).
fn framed(
    frame: &Frame,
    page: Page,
    encoding: Option<&HeaderValue>,
    asked: Option<(&Engine, &Standing)>,
) -> Response {
    let head = html! { (frame.head(&page.title)) (page.now) }.0;
    let tail = html! { (page.end) (Frame::tail()) }.0;
    if page.later.is_empty() {
        let response = Response::bytes(page.status, HTML, head + &tail);
        return compressed(encoding.and_then(|value| value.to_str().ok()), response);
    }
    let later = page.later.into_iter();
    let later = later.map(|own| match asked {
        Some((engine, _)) => apart(engine, own),
        None => own,
    });
    let later: BoxStream<'static, Markup> = match page.is_in_any_order {
        true => later.collect::<FuturesUnordered<_>>().boxed(),
        false => later.collect::<FuturesOrdered<_>>().boxed(),
    };
    let piece = |text: String| Ok::<_, StreamError>(Bytes::from(text));
    let pieces = stream::iter([piece(head)])
        .chain(later.map(move |own| piece(own.0)))
        .chain(stream::iter([piece(tail)]));
    let response = Response::stream(page.status, HTML, pieces);
    let response = match asked {
        Some((_, standing)) => revocation::streamed(standing, response),
        None => response,
    };
    compressed_promptly(encoding.and_then(|value| value.to_str().ok()), response)
}

/// The page for an error outside of projects.
fn refusal(theme: Theme, problem: &Problem) -> Response {
    let content = html! {
        (parts::failed(problem.detail()))
        p { a href="/" { "To the start" } }
    };
    Response::bytes(problem.status(), HTML, door(title_of(problem), theme, &content).0)
}

/// Adds the headers that isolate a page from other origins.
fn secured(mut response: Response) -> Response {
    let headers: [(HeaderName, HeaderValue); 6] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        // Not `no-referrer`, under which browsers send forms of this server without an origin.
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (HeaderName::from_static("cross-origin-opener-policy"), OWN_ORIGIN),
        (RESOURCE_POLICY, OWN_ORIGIN),
    ];
    response.headers.extend(headers);
    if !response.headers.contains_key(header::CACHE_CONTROL) {
        response.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// A style sheet or script. Its name changes with its content, so it never expires.
fn asset(request: &Request) -> Response {
    let Some(asset) = assets::find(request.path()) else {
        return secured(Response::text(StatusCode::NOT_FOUND, "Not found."));
    };
    let accepts = takes_gzip(request.header("accept-encoding").unwrap_or_default());
    let body =
        if accepts { Bytes::from_static(&asset.gzip) } else { Bytes::from_static(asset.bytes) };
    let media_type = HeaderValue::from_static(asset.media_type);
    let mut response = Response::bytes(StatusCode::OK, media_type, body);
    if accepts {
        response.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(caching) = HeaderValue::try_from(format!("public, max-age={YEAR_SECONDS}, immutable"))
    {
        response.headers.insert(header::CACHE_CONTROL, caching);
    }
    secured(response)
}

fn theme_of(headers: &HeaderMap) -> Theme {
    cookie(headers, THEME, ("/", false)).map(Theme::of).unwrap_or_default()
}

async fn choose_theme(request: Request) -> Result<Response, Problem> {
    sign_in::check_origin(&request)?;
    let form = visit::form(request).await?;
    let theme = Theme::of(form.get("theme")).name();
    let mut response = see_other(sign_in::own_path(form.get("next")).unwrap_or("/"))?;
    // The theme is no secret, and the same with and without encryption.
    let (path, seconds) = ("/", YEAR_SECONDS);
    Cookie { name: THEME, value: theme, path, seconds, is_secure: false }.set_by(&mut response);
    Ok(response)
}
