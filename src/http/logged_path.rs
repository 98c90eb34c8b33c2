//! Paths of requests in the log: [`logged_path`]. Queries are not logged at all.

use std::borrow::Cow;

use crate::request::decode;
use weir_event::key_kind::{PERSONAL_PREFIX, SECRET_PREFIX};

/// Longest part of a path that is logged; the longest path of an endpoint has about 100 characters.
const PATH_LOGGED_BYTES: usize = 256;

/// First segments of paths whose next segment is a secret: links to documents and, as in PostHog, links to sign in.
const LINKS: [&str; 5] = ["shared", "shared_dashboard", "embedded", "login", "exporter"];

/// Prefixes of personal keys, and of the secret keys of projects.
const SECRET_PREFIXES: [&str; 2] = [PERSONAL_PREFIX, SECRET_PREFIX];

/// Replaces a secret in the log.
const HIDDEN: &str = "[token]";

/// The path as it is logged: without secrets that would give readers of the log access. Only the path decides, whatever
/// the method and whether an endpoint matches, because a mistyped link contains the same secret.
pub(super) fn logged_path(path: &str) -> Box<str> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let first = segments.next().unwrap_or_default();
    let name = decode(first);
    let is_link = LINKS.iter().any(|link| name.eq_ignore_ascii_case(link));
    let path = match segments.next() {
        Some(token) if is_link => {
            // All tokens have the same length, so the suffix reveals nothing but the format.
            let end = if token.ends_with(".json") { ".json" } else { "" };
            Cow::Owned(format!("/{first}/{HIDDEN}{end}"))
        }
        _ => without_keys(path),
    };
    path.get(..path.floor_char_boundary(PATH_LOGGED_BYTES)).unwrap_or(&path).into()
}

/// A path without the keys that a client put into it by mistake.
fn without_keys(path: &str) -> Cow<'_, str> {
    let is_key = |segment: &str| SECRET_PREFIXES.iter().any(|prefix| segment.contains(prefix));
    if !is_key(path) {
        return Cow::Borrowed(path);
    }
    let shown = path.split('/').map(|own| if is_key(own) { HIDDEN } else { own });
    Cow::Owned(shown.collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::logged_path;

    #[test]
    fn paths_are_logged_without_secrets() {
        let long = format!("/api/{}", "ä".repeat(200));
        for (path, expected) in [
            ("/", "/"),
            ("/e/", "/e/"),
            ("/api/projects/1/insights/", "/api/projects/1/insights/"),
            ("/shared", "/shared"),
            ("/shared/", "/shared/"),
            ("/shared/aB3", "/shared/[token]"),
            ("/shared/aB3.json", "/shared/[token].json"),
            ("/shared_dashboard/aB3.json", "/shared_dashboard/[token].json"),
            ("/embedded/aB3/", "/embedded/[token]"),
            // No endpoint has these paths, but users and proxies write them.
            ("//shared//aB3", "/shared/[token]"),
            ("/Shared/aB3/more/aB3", "/Shared/[token]"),
            ("/%73hared/aB3", "/%73hared/[token]"),
            ("/login/aB3", "/login/[token]"),
            ("/login", "/login"),
            ("/api/projects/phx_secret/", "/api/projects/[token]/"),
            ("/flags/phs_secret,phx_secret", "/flags/[token]"),
            ("/array/phc_public/config.js", "/array/phc_public/config.js"),
            (&long, &long[..255]),
        ] {
            assert_eq!(&*logged_path(path), expected, "{path}");
        }
    }
}
