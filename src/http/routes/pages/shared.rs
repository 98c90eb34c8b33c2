//! What a link leads to, as a page without a sign-in: `/shared/TOKEN`, and `/embedded/TOKEN` within other pages. It is
//! what `/shared/TOKEN.json` tells, computed within the same bounds.

use hyper::StatusCode;
use hyper::header;
use hyper::header::HeaderName;
use hyper::header::HeaderValue;

use crate::app::App;
use crate::error::Kind;
use crate::event::json;
use crate::http::cors::OWN_ORIGIN;
use crate::http::cors::RESOURCE_POLICY;
use crate::http::gzip::compressed;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::documents::shared;
use crate::http::routes::documents::shared::Cache;
use crate::http::routes::pages::HTML;
use crate::http::routes::pages::theme_of;
use crate::web::frame::Theme;
use crate::web::frame::door;
use crate::web::insight::shared as shown;
use crate::web::parts;

/// Nothing from elsewhere, and nothing is sent: no forms, and no requests by scripts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      form-action 'none'; base-uri 'none'; frame-ancestors";

/// `GET /shared/TOKEN` and its other names.
pub async fn page(app: &App, cache: &Cache, token: &str, request: &Request) -> Response {
    let theme = theme_of(&request.headers);
    let (status, html) = match document(app, cache, token, theme).await {
        Ok(html) => (StatusCode::OK, html),
        Err(problem) => {
            let detail = match problem.status() {
                StatusCode::NOT_FOUND => "This link leads nowhere. It may have been turned off.",
                _ => problem.detail(),
            };
            let content = parts::failed(detail);
            (problem.status(), door("This did not work", theme, &content).0)
        }
    };
    let response = Response::bytes(status, HTML, html);
    let mut response = compressed(request.header("accept-encoding"), response);
    let is_embedded = request.path().starts_with("/embedded/");
    let ancestors = if is_embedded { "*" } else { "'none'" };
    let headers = &mut response.headers;
    if let Ok(policy) = HeaderValue::try_from(format!("{POLICY} {ancestors}")) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-robots-tag"), HeaderValue::from_static("noindex")),
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

async fn document(app: &App, cache: &Cache, token: &str, theme: Theme) -> Result<String, Problem> {
    let (share, text) = shared::content(app, cache, token).await?;
    let told = json::restore(&text).map_err(|error| Problem::of(Kind::Internal, &error))?;
    Ok(shown::document(theme, &share.settings, &told).0)
}
