//! CORS: lets pages of any origin read every response, errors included. Nothing here depends on
//! the endpoint: a script on a customer's page must be able to distinguish a 404 from a network
//! failure.
//!
//! Origin, method and headers are mirrored, with credentials, as PostHog does (`axum` with
//! `tower_http::cors::AllowOrigin::mirror_request`). This is safe, because none of these responses depends on cookies.
//! Responses of pages do, and other origins may not read them.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, VARY,
};
use hyper::{HeaderMap, StatusCode};

use crate::response::Response;

/// Seconds for which a browser may cache a preflight; browsers limit it (Firefox to a day,
/// Chromium to two hours).
const MAX_AGE_SECONDS: HeaderValue = HeaderValue::from_static("86400");

/// Headers that scripts of a page may read: the version of a response, the time to retry, and the
/// request id for a report to the operator.
const READABLE: HeaderValue = HeaderValue::from_static("etag, retry-after, x-request-id");

const YES: HeaderValue = HeaderValue::from_static("true");

/// The header that restricts a response to pages of this server.
pub const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// The value of [`RESOURCE_POLICY`].
pub const OWN_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// `Vary`: other origins get another `Access-Control-Allow-Origin`.
const ORIGIN: HeaderValue = HeaderValue::from_static("origin");
const PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "origin, access-control-request-method, access-control-request-headers",
);

/// Answers OPTIONS for any path. A preflight is granted what it requests; without one the response is the
/// `{"status":"Ok"}` of capture. Never a redirect: browsers fail a preflight that is redirected.
pub fn options(request: &HeaderMap) -> Response {
    let Some(method) = request.get(ACCESS_CONTROL_REQUEST_METHOD) else {
        return Response::json_bytes(StatusCode::OK, &br#"{"status":"Ok"}"#[..]);
    };
    let mut response = Response::empty(StatusCode::OK);
    response.headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(headers) = request.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        response.headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers.clone());
    }
    response.headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS);
    response.headers.insert(VARY, PREFLIGHT);
    response
}

/// Lets `origin` (the request's header, if it had one) read a response with these headers. A response only for pages of
/// this server, which depends on a cookie, is marked by `Cross-Origin-Resource-Policy` and left out.
pub fn allow(origin: Option<HeaderValue>, answer: &mut HeaderMap) {
    if answer.get(RESOURCE_POLICY).is_some_and(|policy| policy == OWN_ORIGIN) {
        return;
    }
    if !answer.contains_key(VARY) {
        answer.insert(VARY, ORIGIN);
    } else if !answer.get_all(VARY).iter().any(names_origin) {
        answer.append(VARY, ORIGIN);
    }
    if let Some(origin) = origin {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, YES);
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READABLE);
    }
}

fn names_origin(vary: &HeaderValue) -> bool {
    let Ok(names) = vary.to_str() else { return false };
    names.split(',').any(|name| name.trim().eq_ignore_ascii_case("origin"))
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;
    use hyper::header::{HeaderName, HeaderValue};

    use super::{allow, options};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_preflight_gets_what_it_asks_for() {
        let request = headers(&[
            ("origin", "https://shop.example"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type,x-custom"),
        ]);
        let mut response = options(&request);
        allow(request.get("origin").cloned(), &mut response.headers);
        assert_eq!(response.status, 200);
        for (name, value) in [
            ("access-control-allow-origin", "https://shop.example"),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-methods", "POST"),
            ("access-control-allow-headers", "content-type,x-custom"),
            ("access-control-expose-headers", "etag, retry-after, x-request-id"),
        ] {
            assert_eq!(response.headers.get(name).unwrap(), value, "{name}");
        }
        assert_eq!(response.headers.get_all("vary").iter().count(), 1);
    }

    #[test]
    fn every_answer_varies_by_origin_once() {
        for (vary, expected) in [
            (None, vec!["origin"]),
            (Some("accept"), vec!["accept", "origin"]),
            (Some("Accept, Origin"), vec!["Accept, Origin"]),
        ] {
            let mut answer = HeaderMap::new();
            if let Some(vary) = vary {
                answer.insert("vary", HeaderValue::from_static(vary));
            }
            allow(None, &mut answer);
            assert_eq!(answer.get_all("vary").iter().collect::<Vec<_>>(), expected);
            assert!(!answer.contains_key("access-control-allow-origin"), "nobody asked");
        }
    }
}
