//! Forms of pages, as a browser sends them.

use crate::harness::{Answer, KEY, TestServer};

/// Sends a form of a page of the first project.
pub(crate) fn post(server: &TestServer, path: &str, fields: &[(&str, &str)]) -> Answer {
    post_to(server, &format!("/project/1/{path}"), fields)
}

/// Sends a form of a page.
pub(crate) fn post_to(server: &TestServer, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut body = form_urlencoded::Serializer::new(String::new());
    fields.iter().for_each(|(name, value)| _ = body.append_pair(name, value));
    let bearer = format!("Bearer {KEY}");
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    server.send("POST", path, &headers, body.finish())
}
