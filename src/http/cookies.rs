//! Cookies: the value of one in a request, and one to be set: [`Cookie`].

use hyper::HeaderMap;
use hyper::header::COOKIE;
use hyper::header::HeaderValue;
use hyper::header::SET_COOKIE;

use crate::http::response::Response;

/// The value of a cookie.
pub fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| {
        let (own, value) = pair.trim().split_once('=')?;
        (own == name).then_some(value)
    })
}

/// A cookie that no script sees and no other site's forms and pictures send.
#[derive(Clone, Copy, Debug)]
pub struct Cookie<'c> {
    /// Its name.
    pub name: &'c str,
    /// Its value.
    pub value: &'c str,
    /// The path that it is sent to, with those below.
    pub path: &'c str,
    /// Its life in seconds; zero removes it.
    pub seconds: u64,
    /// Whether it is for encrypted connections only.
    pub is_secure: bool,
}

impl Cookie<'_> {
    /// Sets the cookie by a response, beside others that it sets.
    pub fn set_by(self, response: &mut Response) {
        let Self { name, value, path, seconds, is_secure } = self;
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
    use hyper::HeaderMap;
    use hyper::StatusCode;
    use hyper::header::COOKIE;
    use hyper::header::HeaderValue;
    use hyper::header::SET_COOKIE;

    use super::Cookie;
    use super::cookie;
    use crate::http::response::Response;

    #[test]
    fn cookies_are_found_by_their_whole_names() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("ab=1; a=2;b=x=y"));
        headers.append(COOKIE, HeaderValue::from_static("c="));
        for (name, expected) in
            [("a", Some("2")), ("ab", Some("1")), ("b", Some("x=y")), ("c", Some("")), ("d", None)]
        {
            assert_eq!(cookie(&headers, name), expected, "{name}");
        }
    }

    #[test]
    fn several_cookies_are_set_by_one_response() {
        let mut response = Response::empty(StatusCode::OK);
        let first = Cookie { name: "n", value: "v", path: "/p", seconds: 9, is_secure: false };
        first.set_by(&mut response);
        Cookie { path: "/q", is_secure: true, ..first }.set_by(&mut response);
        // What no header may have is not set.
        Cookie { value: "a\r\nb", ..first }.set_by(&mut response);
        let set: Vec<_> = response.headers.get_all(SET_COOKIE).into_iter().collect();
        let expected = [
            "n=v; Path=/p; Max-Age=9; HttpOnly; SameSite=Lax",
            "n=v; Path=/q; Max-Age=9; HttpOnly; SameSite=Lax; Secure",
        ];
        assert_eq!(set, expected);
    }
}
