//! Pagination: `limit` and `offset` of the query, and the envelope with links.

use form_urlencoded::Serializer;
use hyper::StatusCode;
use hyper::header::HeaderName;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::budget::Reservation;
use crate::client_address::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::members::{Member, Members};
use crate::objects;
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::rows::Rows;
use weir_app::App;
use weir_base::error::Kind;
use weir_query::persons::people::Part;

/// Default number of items of a page.
const LIMIT_DEFAULT: usize = 100;

/// Most items of a page, so that one request cannot read a large list at once.
const LIMIT_MAX: usize = 10_000;

/// The requested part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Most items.
    pub limit: usize,
    /// Items skipped.
    pub offset: usize,
}

/// A page of a list as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "{T}Page")]
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

/// An [`Envelope`] without its items.
#[derive(Debug, Serialize)]
pub(super) struct Links {
    count: usize,
    next: Option<String>,
    previous: Option<String>,
}

/// The first page.
impl Default for Page {
    fn default() -> Self {
        Self { limit: LIMIT_DEFAULT, offset: 0 }
    }
}

impl Page {
    /// The page of `request`. A value that is not a number counts as absent, and so does a limit of 0.
    pub fn of(request: &Request) -> Self {
        let number = |name: &str| request.query(name).and_then(|text| text.parse().ok());
        let limit = number("limit").filter(|limit| *limit > 0).unwrap_or(LIMIT_DEFAULT);
        Self { limit: limit.min(LIMIT_MAX), offset: number("offset").unwrap_or(0) }
    }

    /// The same page with another limit.
    pub fn limited(self, limit: usize) -> Self {
        Self { limit: limit.min(LIMIT_MAX), ..self }
    }

    /// The same page for a list of persons or definitions.
    pub fn part(self) -> Part {
        Part { offset: self.offset, limit: self.limit }
    }

    /// The response with `results`, one page of a list of `count` items, written outside the threads of sockets.
    ///
    /// # Errors
    ///
    /// The server stops.
    pub async fn answer<T: Serialize + Send + 'static>(
        self,
        app: &App,
        request: &Request,
        rendering: Rendering,
        (count, results): (usize, Vec<T>),
    ) -> Result<Response, Problem> {
        let public_url = app.node.config.http.public_url.as_deref();
        let envelope = self.envelope(request, public_url, count, results);
        objects::answer(&app.node.cpu, StatusCode::OK, rendering, envelope).await
    }

    /// The envelope with `results`, one page of a list of `count` items.
    pub fn envelope<T>(
        self,
        request: &Request,
        public_url: Option<&str>,
        count: usize,
        results: Vec<T>,
    ) -> Envelope<T> {
        let Links { count, next, previous } = self.links((request, public_url), count, self.limit);
        Envelope { count, next, previous, results }
    }

    /// The response with rows that are serialized already.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    pub(super) fn finished(
        self,
        app: &App,
        request: &Request,
        count: usize,
        rows: Rows,
    ) -> Result<Response, Problem> {
        let links = self.links_text(app, request, (count, rows.count()))?;
        Ok(Response::counted_json(StatusCode::OK, &rows.within_object(&links)?))
    }

    /// The response with these rows, written outside the threads of sockets. The page covers `taken` items of a list of
    /// `count`; `read` holds the memory of the rows.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    pub(super) async fn written_whole(
        self,
        app: &App,
        request: &Request,
        (count, taken): (usize, usize),
        (rows, read): (Vec<Members>, Reservation),
    ) -> Result<Response, Problem> {
        let public_url = app.node.config.http.public_url.as_deref();
        let Links { count, next, previous } = self.links((request, public_url), count, taken);
        let links = json!({"count": count, "next": next, "previous": previous});
        let mut page = Members::from(links);
        page.set("results", Member::List(rows));
        page.answer(&app.node.cpu, StatusCode::OK, (&request.memory(), read)).await
    }

    fn links_text(
        self,
        app: &App,
        request: &Request,
        (count, shown): (usize, usize),
    ) -> Result<String, Problem> {
        let public_url = app.node.config.http.public_url.as_deref();
        let links = serde_json::to_string(&self.links((request, public_url), count, shown));
        links.map_err(|error| Problem::of(Kind::Internal, &error))
    }

    /// Count and links of a page that has `shown` items of a list of `count`.
    pub(super) fn links(
        self,
        (request, public_url): (&Request, Option<&str>),
        count: usize,
        shown: usize,
    ) -> Links {
        let link = |offset: usize| self.link(request, public_url, offset);
        let next = self.next(count, shown).map(link);
        let previous = (self.offset > 0).then(|| link(self.offset.saturating_sub(self.limit)));
        Links { count, next, previous }
    }

    /// The offset of the next page of a list of `count` items, if there is one after `shown` items of this page.
    pub(super) fn next(self, count: usize, shown: usize) -> Option<usize> {
        let after = self.offset.saturating_add(shown.min(self.limit));
        (shown > 0 && after < count).then_some(after)
    }

    /// The URL of the request with another offset; offset 0 is left out.
    pub fn link(self, request: &Request, public_url: Option<&str>, offset: usize) -> String {
        let limit = ("limit", self.limit);
        match offset {
            0 => Self::link_to(request, public_url, &[limit]),
            offset => Self::link_to(request, public_url, &[limit, ("offset", offset)]),
        }
    }

    /// The absolute URL of the request with these parameters before its others.
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

/// The base URL of links: the setting `public-url`, else scheme and host from the headers of a trusted proxy, else the
/// address of the request. Such headers of other peers are removed before (`http/client_address.rs`).
pub fn base_url(request: &Request, public_url: Option<&str>) -> String {
    if let Some(url) = public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let scheme = match told(request, X_FORWARDED_PROTO) {
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => "https",
        _ => "http",
    };
    let host = told(request, X_FORWARDED_HOST).or_else(|| request.header("host"));
    let host = host.filter(|host| is_authority(host)).unwrap_or("localhost");
    format!("{scheme}://{host}")
}

/// Whether a request came over an encrypted connection, by its [`base_url`].
pub fn is_encrypted(request: &Request, public_url: Option<&str>) -> bool {
    base_url(request, public_url).starts_with("https://")
}

/// The header value that the nearest proxy added: each proxy appends its own value to those that it received.
fn told(request: &Request, name: HeaderName) -> Option<&str> {
    let last = request.headers.get_all(name).iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next().map(str::trim).filter(|text| !text.is_empty())
}

/// Whether a text is a host with or without a port, and has no character that would change the target of a link.
fn is_authority(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}
