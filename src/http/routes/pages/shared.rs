//! What a link leads to, as a page without a sign-in: `/shared/TOKEN`, and `/embedded/TOKEN` within other pages. It is
//! what `/shared/TOKEN.json` tells, computed within the same bounds, or the form for its password.

use hyper::Method;
use hyper::StatusCode;
use hyper::header;
use hyper::header::HeaderName;
use hyper::header::HeaderValue;

use crate::app::App;
use crate::error::Kind;
use crate::event::json;
use crate::http::cors::OWN_ORIGIN;
use crate::http::cors::RESOURCE_POLICY;
use crate::http::fields::is_json;
use crate::http::gzip::compressed;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::documents::shared;
use crate::http::routes::documents::shared::Links;
use crate::http::routes::documents::unlock;
use crate::http::routes::documents::unlock::Place;
use crate::http::routes::pages::HTML;
use crate::http::routes::pages::theme_of;
use crate::http::routes::pages::visit::see_other;
use crate::metadata::documents::shares::Share;
use crate::web::frame::Theme;
use crate::web::frame::door;
use crate::web::insight::shared as shown;
use crate::web::parts;

/// Nothing from elsewhere, and nothing is sent: no requests by scripts, and no forms but that for the password.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      base-uri 'none'";

/// `GET` and `POST` of `/shared/TOKEN` and its other names.
pub async fn page(app: &App, links: &Links, token: &str, request: Request) -> Response {
    let theme = theme_of(&request.headers);
    let encoding = request.header("accept-encoding").map(str::to_owned);
    let is_embedded = request.path().starts_with("/embedded/");
    let (response, is_locked) = match shared::find(app, token).await {
        Ok(share) => {
            let is_locked = share.is_password_required;
            let answer = match is_locked && request.method == Method::POST {
                true => unlocked(app, links, &share, (request, theme)).await,
                false => looked_at(app, links, &share, (&request, theme)).await,
            };
            (answer.unwrap_or_else(|problem| failed(theme, &problem)), is_locked)
        }
        Err(problem) => (failed(theme, &problem), false),
    };
    let response = compressed(encoding.as_deref(), response);
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

/// What a link leads to, or the form for its password.
async fn looked_at(
    app: &App,
    links: &Links,
    share: &Share,
    (request, theme): (&Request, Theme),
) -> Result<Response, Problem> {
    if unlock::is_passed(app, share, request).await? {
        return document(app, links, share, theme).await;
    }
    Ok(Response::bytes(StatusCode::OK, HTML, locked(theme, None)))
}

/// What becomes of a password. A form leads back to the page, which the cookie then opens; but within a page of
/// another site browsers keep no cookie, so there the answer is the page.
async fn unlocked(
    app: &App,
    links: &Links,
    share: &Share,
    (request, theme): (Request, Theme),
) -> Result<Response, Problem> {
    let is_json = is_json(request.header("content-type").unwrap_or_default());
    let place = Place::of(app, &request);
    let is_embedded = request.path().starts_with("/embedded/");
    match unlock::attempt(app, &links.guesses, share, request).await {
        Ok(pass) if is_json => Ok(place.told(share, &pass)),
        Ok(pass) => {
            let response = match is_embedded {
                true => document(app, links, share, theme).await?,
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
    links: &Links,
    share: &Share,
    theme: Theme,
) -> Result<Response, Problem> {
    let text = shared::content(app, links, share).await?;
    let told = json::restore(&text).map_err(|error| Problem::of(Kind::Internal, &error))?;
    let html = shown::document(theme, &share.settings, &told).0;
    Ok(Response::bytes(StatusCode::OK, HTML, html))
}

fn locked(theme: Theme, failure: Option<&str>) -> String {
    door("This link asks for a password", theme, &shown::lock(failure)).0
}

fn failed(theme: Theme, problem: &Problem) -> Response {
    let detail = match problem.status() {
        StatusCode::NOT_FOUND => "This link leads nowhere. It may have been turned off.",
        _ => problem.detail(),
    };
    let html = door("This did not work", theme, &parts::failed(detail)).0;
    Response::bytes(problem.status(), HTML, html)
}
