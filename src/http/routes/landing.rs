//! `/`: JSON for clients that accept it; for all others the one word by which proxies of the SDKs recognize a capture
//! server. Browsers are redirected to the page. Contains no secrets: it is public.

use hyper::header::HeaderValue;
use hyper::{StatusCode, header};

use crate::request::Request;
use crate::response::Response;
use weir_api::sdk::Server;
use weir_app::App;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Format of the response, by `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
    Word,
}

/// `GET /`.
pub fn landing(app: &App, request: &Request) -> Response {
    let unready = app.shard.pipeline.readiness().err().map(|error| error.to_string());
    answer(form(request.header("accept").unwrap_or_default()), unready.as_deref())
}

/// Whether the client accepts HTML first.
pub fn is_for_a_browser(request: &Request) -> bool {
    form(request.header("accept").unwrap_or_default()) == Form::Html
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

fn answer(form: Form, unready: Option<&str>) -> Response {
    let response = match form {
        // Browsers are redirected before this.
        Form::Word | Form::Html => Response::text(StatusCode::OK, "capture"),
        Form::Json => {
            let ready = unready.is_none();
            let (name, version, schema) = ("weir", VERSION, "/api/schema/");
            let body = Server { name, version, ready, reason: unready, schema };
            Response::json(StatusCode::OK, &body)
        }
    };
    response
        .with_header(header::VARY, HeaderValue::from_static("accept"))
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

#[cfg(test)]
mod tests {
    use super::{Form, form};

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
}
