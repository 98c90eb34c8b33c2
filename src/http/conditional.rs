//! Conditional requests and caching: `ETag`, `If-None-Match` and `Cache-Control` (RFC 9110, 8.8.3
//! and 13.1.2; RFC 9111). The routes decide which responses are cacheable.

use hyper::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::{HeaderMap, StatusCode};
use sha1::{Digest, Sha1};

use crate::response::Response;

/// Version tag of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Hexadecimal digits in quotes.
    text: String,
    /// A weak tag: it identifies the meaning of the response and not its bytes.
    is_weak: bool,
}

impl Tag {
    /// The tag of a response with this body.
    pub fn of(body: &[u8]) -> Self {
        Self { text: format!("\"{}\"", hex::encode(Sha1::digest(body))), is_weak: false }
    }

    /// The same as a weak tag.
    pub fn weak(self) -> Self {
        Self { is_weak: true, ..self }
    }

    /// The tag of a response that depends on these parts only.
    pub fn of_parts(parts: &[u64]) -> Self {
        let parts: Vec<String> = parts.iter().map(|part| format!("{part:x}")).collect();
        Self { text: format!("\"{}\"", parts.join("-")), is_weak: false }
    }

    /// The value of the header.
    fn value(&self) -> String {
        let prefix = if self.is_weak { "W/" } else { "" };
        format!("{prefix}{}", self.text)
    }

    /// Whether the client has this version already. Compares weak and strong tags alike.
    fn is_in(&self, request: &HeaderMap) -> bool {
        let bare = |tag: &str| tag.trim().trim_start_matches("W/") == self.text;
        let lists = request.get_all(IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
        lists.flat_map(|list| list.split(',')).any(|tag| tag.trim() == "*" || bare(tag))
    }
}

/// The response of `make`, or 304 without a body if the client has this version already. `cache` is
/// the `Cache-Control` of both.
pub fn respond(
    request: &HeaderMap,
    tag: &Tag,
    cache: &'static str,
    make: impl FnOnce() -> Response,
) -> Response {
    let response = match tag.is_in(request) {
        true => Response::empty(StatusCode::NOT_MODIFIED),
        false => make(),
    };
    let response = response.with_header(CACHE_CONTROL, HeaderValue::from_static(cache));
    // Hexadecimal digits in quotes are always a valid header.
    match HeaderValue::from_str(&tag.value()) {
        Ok(tag) => response.with_header(ETAG, tag),
        Err(_) => response,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use hyper::{HeaderMap, StatusCode};

    use super::{Tag, respond};
    use crate::response::Response;

    #[test]
    fn who_has_the_answer_is_not_sent_it() {
        let tag = Tag::of_parts(&[0x1f, 2]);
        assert_eq!(
            (tag.value(), tag.clone().weak().value()),
            ("\"1f-2\"".into(), "W/\"1f-2\"".into())
        );
        for (sent, status) in [
            (None, 200),
            (Some("\"1f-2\""), 304),
            (Some("W/\"1f-2\""), 304),
            (Some("\"other\", W/\"1f-2\""), 304),
            (Some("*"), 304),
            (Some("\"1f-20\""), 200),
            (Some("1f-2"), 200),
            (Some(""), 200),
        ] {
            let mut request = HeaderMap::new();
            if let Some(sent) = sent {
                request.insert("if-none-match", HeaderValue::from_static(sent));
            }
            let response =
                respond(&request, &tag, "max-age=5", || Response::text(StatusCode::OK, "text"));
            assert_eq!(response.status.as_u16(), status, "{sent:?}");
            let weak = tag.clone().weak();
            let weak =
                respond(&request, &weak, "max-age=5", || Response::text(StatusCode::OK, "text"));
            assert_eq!(weak.status, response.status, "{sent:?}");
            assert_eq!(weak.headers.get("etag").unwrap(), "W/\"1f-2\"");
            assert_eq!(response.headers.get("etag").unwrap(), "\"1f-2\"");
            assert_eq!(response.headers.get("cache-control").unwrap(), "max-age=5");
            assert_eq!(response.headers.contains_key("content-type"), status == 200);
        }
    }

    #[test]
    fn other_bodies_have_other_tags() {
        assert_ne!(Tag::of(b"a"), Tag::of(b"b"));
        assert_eq!(Tag::of(b"").value(), "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"");
    }
}
