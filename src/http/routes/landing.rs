//! `/`: landing page. HTML for browsers, JSON for clients that accept it, and for all others the one word
//! by which proxies of the SDKs recognize a capture server. Contains no secrets: it is public.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header;
use hyper::header::HeaderName;
use hyper::header::HeaderValue;
use serde::Serialize;
use sha2::Digest;
use sha2::Sha256;

use crate::app::App;
use crate::http::page::base_url;
use crate::http::request::Request;
use crate::http::response::Response;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Sections of the README that the page links to.
const SECTIONS: [&str; 7] = [
    "Start",
    "Try",
    "Guarantees",
    "Read the files with other engines",
    "Operate",
    "Develop",
    "Find your way",
];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:2em auto;padding:0 1em}\
                     pre{overflow:auto;padding:1em;background:#8882}";

/// Format of the response, by `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
    Word,
}

/// The JSON response.
#[derive(Debug, Serialize)]
struct Body<'a> {
    name: &'static str,
    version: &'static str,
    ready: bool,
    /// Reason if the server is not ready.
    reason: Option<&'a str>,
    schema: &'static str,
}

/// `GET /`.
pub fn landing(app: &App, request: &Request) -> Response {
    let unready = app.pipeline.readiness().err().map(|error| error.to_string());
    let base = base_url(request, app.config.http.public_url.as_deref());
    answer(form(request.header("accept").unwrap_or_default()), unready.as_deref(), &base)
}

/// The first supported format in `accept`; weights are ignored.
fn form(accept: &str) -> Form {
    let media_types =
        accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
    let known = |media_type: &str| match media_type.to_ascii_lowercase().as_str() {
        "text/html" | "application/xhtml+xml" => Some(Form::Html),
        "application/json" => Some(Form::Json),
        "text/plain" | "*/*" => Some(Form::Word),
        _ => None,
    };
    media_types.filter_map(known).next().unwrap_or(Form::Word)
}

fn answer(form: Form, unready: Option<&str>, base: &str) -> Response {
    let response = match form {
        Form::Word => Response::text(StatusCode::OK, "capture"),
        Form::Json => {
            let ready = unready.is_none();
            let (name, version, schema) = ("weir", VERSION, "/api/schema/");
            let body = Body { name, version, ready, reason: unready, schema };
            Response::json(StatusCode::OK, &body)
        }
        Form::Html => html(unready, base),
    };
    response
        .with_header(header::VARY, HeaderValue::from_static("accept"))
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

/// A page that loads nothing: no script, and only inline styles.
fn html(unready: Option<&str>, base: &str) -> Response {
    let content_type = HeaderValue::from_static("text/html; charset=utf-8");
    let style = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy);
    let policy = policy.unwrap_or(HeaderValue::from_static("default-src 'none'"));
    let headers: [(HeaderName, HeaderValue); 3] = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    let response = Response::bytes(StatusCode::OK, content_type, page(unready, base));
    headers.into_iter().fold(response, |response, (name, value)| response.with_header(name, value))
}

fn page(unready: Option<&str>, base: &str) -> String {
    let (base, state) = (
        escaped(base),
        match unready {
            None => "It takes events.".to_owned(),
            Some(reason) => format!("It takes no events at the moment: {}.", escaped(reason)),
        },
    );
    let sections: String = SECTIONS.iter().map(|name| format!("<li>{name}</li>\n")).collect();
    format!(
        "<!doctype html>\n\
         <html lang=\"en\">\n\
         <head><meta charset=\"utf-8\"><title>Weir</title><style>{STYLE}</style></head>\n\
         <body>\n\
         <h1>Weir {VERSION}</h1>\n\
         <p>An event-analytics server: events in over HTTP in the shapes of the PostHog SDKs, Parquet and Delta \
         files out; persons, feature flags and SQL over the same data. {state}</p>\n\
         <h2>Send an event</h2>\n\
         <p>With the project API key, which the server prints when it starts (<code>phc_...</code>):</p>\n\
         <pre>curl {base}/capture/ -H 'Content-Type: application/json' \\\n  \
         -d '{{\"api_key\": \"phc_...\", \"event\": \"hello\", \"distinct_id\": \"me\"}}'</pre>\n\
         <p>Reading needs a personal API key: <code>weir keys create LABEL</code>.</p>\n\
         <h2>Where to go</h2>\n\
         <ul>\n\
         <li><a href=\"/api/schema/\">/api/schema/</a>: all endpoints (OpenAPI)</li>\n\
         <li><a href=\"/_readiness\">/_readiness</a>: whether events are taken</li>\n\
         <li><a href=\"/metrics\">/metrics</a>: metrics for Prometheus</li>\n\
         </ul>\n\
         <p>Sections of the README:</p>\n\
         <ul>\n{sections}</ul>\n\
         </body>\n\
         </html>\n"
    )
}

/// `text` escaped for HTML, including attribute values.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::Form;
    use super::SECTIONS;
    use super::form;
    use super::page;

    #[test]
    fn the_form_is_what_is_asked_for_first() {
        for (accept, expected) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Form::Html),
            ("application/json", Form::Json),
            ("application/json, text/plain, */*", Form::Json),
            ("Application/JSON; q=0.5", Form::Json),
            ("*/*", Form::Word),
            ("text/plain", Form::Word),
            ("image/png", Form::Word),
            ("", Form::Word),
        ] {
            assert_eq!(form(accept), expected, "{accept}");
        }
    }

    #[test]
    fn what_is_not_ours_is_text() {
        let page = page(Some("<b>"), "http://\"><script>alert(1)</script>&'");
        assert!(page.contains("at the moment: &lt;b&gt;."), "{page}");
        let address =
            "curl http://&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#39;/capture/";
        assert!(page.contains(address), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn sections_are_those_of_the_readme() {
        let readme = include_str!("../../../README.md");
        let sections: Vec<&str> =
            readme.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(sections, SECTIONS);
    }
}
