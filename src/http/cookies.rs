//! Cookies: the value of one in a request, and one to be set: [`Cookie`].
//!
//! # Names
//!
//! A browser also sends cookies of this name that a sibling domain, or the same host without encryption, has set; the
//! server cannot distinguish them. Under a name that begins with `__Host-`, a browser accepts a cookie only from the
//! host itself, over an encrypted connection, for all paths; under `__Secure-`, for a cookie of some paths, only over
//! an encrypted connection (RFC 6265bis, 4.1.3). Browsers refuse such names without encryption, so the scheme
//! determines the name. Over an encrypted connection only the prefixed name is read: a cookie that was set without
//! encryption is not trusted there.

use hyper::HeaderMap;
use hyper::header::{COOKIE, HeaderValue, SET_COOKIE};

use crate::response::Response;

/// The name under which a cookie of this path is sent: with the prefix for its scheme and path.
fn name_of(name: &str, (path, is_secure): (&str, bool)) -> String {
    let prefix = match (is_secure, path) {
        (false, _) => "",
        (true, "/") => "__Host-",
        (true, _) => "__Secure-",
    };
    format!("{prefix}{name}")
}

/// The value of a cookie that was set for a path. `is_secure`: the request came over an encrypted connection.
pub fn cookie<'h>(
    headers: &'h HeaderMap,
    name: &str,
    (path, is_secure): (&str, bool),
) -> Option<&'h str> {
    let name = name_of(name, (path, is_secure));
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| {
        let (own, value) = pair.trim().split_once('=')?;
        (own == name).then_some(value)
    })
}

/// A cookie that scripts cannot read (`HttpOnly`), and that forms and images of other sites do not send
/// (`SameSite=Lax`).
#[derive(Clone, Copy, Debug)]
pub struct Cookie<'c> {
    /// Its name, without the prefix for the scheme.
    pub name: &'c str,
    /// Its value.
    pub value: &'c str,
    /// The path for which it is sent, with those below.
    pub path: &'c str,
    /// Its lifetime in seconds; zero deletes it.
    pub seconds: u64,
    /// Whether it is for encrypted connections only.
    pub is_secure: bool,
}

impl Cookie<'_> {
    /// Adds the cookie to a response, besides others that it sets.
    pub fn set_by(self, response: &mut Response) {
        let Self { name, value, path, seconds, is_secure } = self;
        let name = name_of(name, (path, is_secure));
        let secure = if is_secure { "; Secure" } else { "" };
        let text = format!(
            "{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
        );
        if let Ok(text) = HeaderValue::try_from(text) {
            response.headers.append(SET_COOKIE, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{COOKIE, HeaderValue, SET_COOKIE};
    use hyper::{HeaderMap, StatusCode};

    use super::{Cookie, cookie};
    use crate::response::Response;

    #[test]
    fn cookies_are_found_by_their_whole_names() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("ab=1; a=2;b=x=y"));
        headers.append(COOKIE, HeaderValue::from_static("c="));
        for (name, expected) in
            [("a", Some("2")), ("ab", Some("1")), ("b", Some("x=y")), ("c", Some("")), ("d", None)]
        {
            assert_eq!(cookie(&headers, name, ("/", false)), expected, "{name}");
        }
    }

    #[test]
    fn what_was_set_without_encryption_is_not_believed_with_it() {
        let mut headers = HeaderMap::new();
        let all = "n=plain; __Host-n=host; __Secure-n=secure";
        headers.append(COOKIE, HeaderValue::from_static(all));
        headers.append(COOKIE, HeaderValue::from_static("m=plain; __Secure-m=secure"));
        for (name, path, is_secure, expected) in [
            ("n", "/", false, Some("plain")),
            ("n", "/", true, Some("host")),
            ("n", "/shared/x", true, Some("secure")),
            ("n", "/shared/x", false, Some("plain")),
            ("m", "/", true, None),
        ] {
            let found = cookie(&headers, name, (path, is_secure));
            assert_eq!(found, expected, "{name} {path} {is_secure}");
        }
    }

    #[test]
    fn several_cookies_are_set_by_one_response() {
        let mut response = Response::empty(StatusCode::OK);
        let first = Cookie { name: "n", value: "v", path: "/p", seconds: 9, is_secure: false };
        first.set_by(&mut response);
        Cookie { path: "/q", is_secure: true, ..first }.set_by(&mut response);
        Cookie { is_secure: true, path: "/", ..first }.set_by(&mut response);
        // A value that no header may contain is not set.
        Cookie { value: "a\r\nb", ..first }.set_by(&mut response);
        let set: Vec<_> = response.headers.get_all(SET_COOKIE).into_iter().collect();
        let expected = [
            "n=v; Path=/p; Max-Age=9; HttpOnly; SameSite=Lax",
            "__Secure-n=v; Path=/q; Max-Age=9; HttpOnly; SameSite=Lax; Secure",
            "__Host-n=v; Path=/; Max-Age=9; HttpOnly; SameSite=Lax; Secure",
        ];
        assert_eq!(set, expected);
    }
}
