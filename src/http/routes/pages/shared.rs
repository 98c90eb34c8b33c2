//! The page of a shared link, without a sign-in: `/shared/TOKEN`, and `/embedded/TOKEN` within other pages. It shows
//! the content of `/shared/TOKEN.json`, computed within the same bounds, or the form for its password.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode, header};
use serde_json::{Map, Value};

use crate::budget::Memory;
use crate::cors::{OWN_ORIGIN, RESOURCE_POLICY};
use crate::fields::is_json;
use crate::gzip::{is_compressed, takes_gzip};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::documents::shared::{Encoding, Links};
use crate::routes::documents::unlock::CookiePath;
use crate::routes::documents::{shared, sharing, unlock};
use crate::routes::pages::visit::see_other;
use crate::routes::pages::{HTML, theme_of};
use weir_api::shared::Shared;
use weir_app::App;
use weir_insights::saved::query_of;
use weir_metadata::documents::shares::Share;
use weir_web::frame::{Theme, door};
use weir_web::insight::shared as shown;
use weir_web::parts;

/// Loads nothing from other origins and sends nothing: no requests by scripts, and no forms except the one for the
/// password.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      base-uri 'none'";

/// `GET` and `POST` of `/shared/TOKEN` and its other names.
pub async fn page(app: &App, links: &Links, token: &str, request: Request) -> Response {
    let theme = theme_of(&request.headers);
    let encoding = match takes_gzip(request.header("accept-encoding").unwrap_or_default()) {
        true => Encoding::Gzip,
        false => Encoding::Plain,
    };
    let shown = (theme, encoding);
    let is_embedded = request.path().starts_with("/embedded/");
    let (response, is_locked) = match shared::find(&app.node.metadata, token).await {
        Ok(share) => {
            let is_locked = share.is_password_required;
            let answer = match is_locked && request.method == Method::POST {
                true => unlocked(app, links, &share, (request, shown)).await,
                false => looked_at(app, links, &share, (&request, shown)).await,
            };
            (answer.unwrap_or_else(|problem| failed(theme, &problem)), is_locked)
        }
        Err(problem) => (failed(theme, &problem), false),
    };
    let mut response = shared::secured(response, is_locked);
    let headers = &mut response.headers;
    let form = if is_locked { "'self'" } else { "'none'" };
    let ancestors = if is_embedded { "*" } else { "'none'" };
    let policy = format!("{POLICY}; form-action {form}; frame-ancestors {ancestors}");
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), OWN_ORIGIN),
    ] {
        headers.insert(name, value);
    }
    if !is_embedded {
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(RESOURCE_POLICY, OWN_ORIGIN);
    }
    response
}

/// The page of a link, or the form for its password.
async fn looked_at(
    app: &App,
    links: &Links,
    share: &Share,
    (request, shown): (&Request, (Theme, Encoding)),
) -> Result<Response, Problem> {
    if unlock::is_passed(app, share, request).await? {
        return document(app, (links, &request.memory()), share, shown).await;
    }
    Ok(Response::bytes(StatusCode::OK, HTML, locked(shown.0, None)))
}

/// Checks a password. The response to a form redirects to the page, which the cookie then unlocks; but within a page of
/// another site browsers store no cookie, so there the response is the page itself.
async fn unlocked(
    app: &App,
    links: &Links,
    share: &Share,
    (request, shown): (Request, (Theme, Encoding)),
) -> Result<Response, Problem> {
    let (theme, memory) = (shown.0, request.memory());
    let is_json = is_json(request.header("content-type").unwrap_or_default());
    let place = CookiePath::of(app, &request);
    let is_embedded = request.path().starts_with("/embedded/");
    match unlock::attempt(app, &links.guesses, share, request).await {
        Ok(pass) if is_json => Ok(place.told(share, &pass)),
        Ok(pass) => {
            let response = match is_embedded {
                true => document(app, (links, &memory), share, shown).await?,
                false => see_other(&place.path(share))?,
            };
            Ok(place.with_pass(response, share, &pass))
        }
        Err(problem) if is_json => Ok(Response::from(problem)),
        Err(problem) => {
            let form = locked(theme, Some(problem.detail()));
            let mut response = Response::bytes(problem.status(), HTML, form);
            if let Some(wait) = Response::from(problem).headers.remove(header::RETRY_AFTER) {
                response.headers.insert(header::RETRY_AFTER, wait);
            }
            Ok(response)
        }
    }
}

async fn document(
    app: &App,
    (links, memory): (&Links, &Memory),
    share: &Share,
    (theme, encoding): (Theme, Encoding),
) -> Result<Response, Problem> {
    let render = |theme: Theme, settings: &Map<String, Value>, content: Value| {
        let content = Shared::of(content, &query_of_saved);
        shown::document(theme, &sharing::shown(settings), &content).0
    };
    let page = shared::page(app, (links, memory), share, (theme, encoding), render).await?;
    let response = Response::counted(StatusCode::OK, HTML, &page);
    Ok(is_compressed(response, encoding == Encoding::Gzip))
}

fn query_of_saved(insight: &Map<String, Value>) -> Value {
    query_of(insight).ok().flatten().unwrap_or_default()
}

fn locked(theme: Theme, failure: Option<&str>) -> String {
    door("This link requires a password", theme, &shown::lock(failure)).0
}

fn failed(theme: Theme, problem: &Problem) -> Response {
    let detail = match problem.status() {
        StatusCode::NOT_FOUND => "This link does not exist. It may have been disabled.",
        _ => problem.detail(),
    };
    let html = door("The request failed", theme, &parts::failed(detail)).0;
    Response::bytes(problem.status(), HTML, html)
}
