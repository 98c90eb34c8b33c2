//! Pages of lists: `limit` and `offset` of the query, and the envelope with links.

use form_urlencoded::Serializer;
use hyper::StatusCode;
use serde::Serialize;

use crate::app::App;
use crate::http::call::Rendering;
use crate::http::csv;
use crate::http::request::Request;
use crate::http::response::Response;

/// Items of a page unless the request says otherwise.
const LIMIT_DEFAULT: usize = 100;

/// Items of a page at most, so that one request cannot ask for all of a large list at once.
const LIMIT_MAX: usize = 10_000;

/// Which part of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Items at most.
    pub limit: usize,
    /// Items left out before.
    pub offset: usize,
}

/// A part of a list as clients get it.
#[derive(Debug, Serialize)]
pub struct Envelope<T> {
    /// Items of the whole list.
    pub count: usize,
    /// Link to the next page.
    pub next: Option<String>,
    /// Link to the previous page.
    pub previous: Option<String>,
    /// The items.
    pub results: Vec<T>,
}

impl Page {
    /// The page that `request` asks for. What is not a number, or a limit of 0, counts as absent.
    pub fn of(request: &Request) -> Self {
        let number = |name: &str| request.query(name).and_then(|text| text.parse().ok());
        let limit = number("limit").filter(|limit| *limit > 0).unwrap_or(LIMIT_DEFAULT);
        Self { limit: limit.min(LIMIT_MAX), offset: number("offset").unwrap_or(0) }
    }

    /// The answer of a list of `count` items, of which `results` are this page.
    pub fn answer<T: Serialize>(
        self,
        app: &App,
        request: &Request,
        rendering: Rendering,
        count: usize,
        results: Vec<T>,
    ) -> Response {
        let public_url = app.config.http.public_url.as_deref();
        let envelope = self.envelope(request, public_url, count, results);
        csv::render(StatusCode::OK, rendering, &envelope)
    }

    /// The envelope of `results`, which are this page of a list of `count` items.
    pub fn envelope<T>(
        self,
        request: &Request,
        public_url: Option<&str>,
        count: usize,
        results: Vec<T>,
    ) -> Envelope<T> {
        let link = |offset: usize| self.link(request, public_url, offset);
        let after = self.offset.saturating_add(self.limit);
        let next = (after < count).then(|| link(after));
        let previous = (self.offset > 0).then(|| link(self.offset.saturating_sub(self.limit)));
        Envelope { count, next, previous, results }
    }

    /// The address of the request with another offset; offset 0 is left out.
    pub fn link(self, request: &Request, public_url: Option<&str>, offset: usize) -> String {
        let limit = ("limit", self.limit);
        match offset {
            0 => Self::link_to(request, public_url, &[limit]),
            offset => Self::link_to(request, public_url, &[limit, ("offset", offset)]),
        }
    }

    /// The absolute address of the request with these parameters before its others.
    pub fn link_to(
        request: &Request,
        public_url: Option<&str>,
        numbers: &[(&str, usize)],
    ) -> String {
        let mut query = Serializer::new(String::new());
        for (name, number) in numbers {
            query.append_pair(name, &number.to_string());
        }
        for (name, value) in request.query_all() {
            let is_position = matches!(name.as_ref(), "limit" | "offset" | "page");
            if !is_position && name != "personal_api_key" {
                query.append_pair(&name, &value);
            }
        }
        format!("{}{}?{}", base_url(request, public_url), request.path(), query.finish())
    }
}

/// What comes before the path in links: the operator's setting, else what the request was sent to.
pub fn base_url(request: &Request, public_url: Option<&str>) -> String {
    match public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let scheme = request.header("x-forwarded-proto").unwrap_or("http");
            format!("{scheme}://{}", request.header("host").unwrap_or("localhost"))
        }
    }
}
