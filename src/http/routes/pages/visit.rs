//! One request for a page: [`Visit`], with the authenticated visitor, with whose rights operations load the content
//! ([`Asking`]), and the result of a page: [`Sent`].

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use chrono_tz::Tz;
use hyper::header::HeaderValue;
use hyper::{Method, StatusCode, header};
use maud::{Markup, html};
use parking_lot::Mutex;

use crate::auth::Principal;
use crate::beside::beside;
use crate::budget::{Memory, Reservation};
use crate::operation::{Caller, Context, Operation};
use crate::page::base_url;
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::flag_events::Subscribers;
use crate::routes::query::answer::{Answer, rows};
use crate::routes::query::{Query, problems};
use weir_api::query::Rows;
use weir_app::App;
use weir_base::attempts::Attempts;
use weir_base::error::Kind;
use weir_base::tasks::Shutdown;
use weir_insights::cache;
use weir_metadata::sessions::Session;
use weir_query::kernel::engine::Engine;
use weir_web::parts;
use weir_web::state::parameters::{Parameters, Wrong};

/// Longest form, in bytes.
const FORM_MAX_BYTES: u64 = 1 << 20;

/// Longest result of SQL that a page shows, in bytes.
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// Longest result of SQL that is parsed on the threads of sockets.
const PARSED_HERE_MAX_BYTES: usize = 64 << 10;

/// State of all pages.
#[derive(Debug)]
pub struct Desk {
    /// The limit on sign-ins.
    pub sign_ins: Attempts<IpAddr>,
    /// Open streams.
    pub streams: Subscribers,
    /// Cancelled when the server stops.
    pub ending: Shutdown,
}

/// The future of a page function.
pub type Drawing = Pin<Box<dyn Future<Output = Result<Sent, Problem>> + Send>>;

/// The response to a request for a page.
pub enum Sent {
    /// A page.
    Page(Page),
    /// Something else, such as a file.
    Other(Response),
}

/// The content within the frame of a page.
pub struct Page {
    /// The status of the response.
    pub status: StatusCode,
    /// The title.
    pub title: String,
    /// Sent before anything is computed.
    pub now: Markup,
    /// Sent next: each part is computed while those before it are sent.
    pub later: Vec<Later>,
    /// Whether the parts are sent in the order in which they are ready, because each has a fixed place in the page.
    pub is_in_any_order: bool,
    /// Sent last.
    pub end: Markup,
}

/// A part of a page that is being computed.
pub type Later = Pin<Box<dyn Future<Output = Markup> + Send>>;

/// Runs a part of a page on the threads for queries: its queries, and rendering their results.
pub fn apart(engine: &Engine, later: Later) -> Later {
    let engine = engine.clone();
    Box::pin(async move {
        let part = engine.apart(later).await.map_err(problems::problem);
        part.unwrap_or_else(|problem| parts::failed(problem.detail()))
    })
}

impl Page {
    /// A complete page.
    pub fn new(title: impl Into<String>, now: Markup) -> Self {
        Self {
            status: StatusCode::OK,
            title: title.into(),
            now,
            later: Vec::new(),
            is_in_any_order: false,
            end: html! {},
        }
    }

    /// The same with another part, which is computed after the parts before it are sent. An error is shown in its
    /// place.
    #[must_use]
    pub fn then(
        mut self,
        later: impl Future<Output = Result<Markup, Problem>> + Send + 'static,
    ) -> Self {
        self.later.push(Box::pin(async move {
            later.await.unwrap_or_else(|problem| parts::failed(problem.detail()))
        }));
        self
    }
}

/// A request for a page, by a visitor who may see it.
pub struct Visit {
    /// The visitor, and the project.
    pub asking: Arc<Asking>,
    /// The values of the `:names` in the path, decoded, without the project.
    pub parameters: Vec<String>,
    /// The session, if the visitor signed in by a cookie.
    pub session: Option<Session>,
    /// The request, its body unread.
    pub request: Request,
    /// State of all pages.
    pub desk: Arc<Desk>,
}

/// The visitor of a page: loads data by operations of the API, which check the visitor's rights.
pub struct Asking {
    /// The engines.
    pub app: App,
    /// The authenticated caller, and the project.
    pub asker: Principal,
    /// The time zone of the project, in which times are shown.
    pub zone: Tz,
    /// The base URL of this server, as the visitor reaches it.
    pub server: String,
    /// The memory budget for what is read for the page.
    memory: Memory,
    /// Reservations for the data of the page.
    held: Mutex<Vec<Reservation>>,
}

impl Visit {
    /// A visit of `asker`.
    pub fn new(
        app: App,
        asker: Principal,
        (parameters, session): (Vec<String>, Option<Session>),
        request: Request,
        desk: &Arc<Desk>,
    ) -> Self {
        let asking = Arc::new(Asking::new(app, asker, &request));
        Self { asking, parameters, session, request, desk: Arc::clone(desk) }
    }

    /// The id of the project.
    pub fn project(&self) -> i64 {
        self.asking.project()
    }

    /// Takes the request with its body; without a body if it was taken before.
    ///
    /// # Errors
    ///
    /// The head cannot be read.
    pub fn take_request(&mut self) -> Result<Request, Problem> {
        let path = self.request.path().to_owned();
        let rest = self.request.derived(Method::GET, &path, Bytes::new());
        let rest = rest.ok_or_else(|| Problem::not_found("Not found."))?;
        Ok(std::mem::replace(&mut self.request, rest))
    }

    /// A parameter of the query; empty if it has none.
    pub fn parameter(&self, name: &str) -> String {
        self.request.query(name).unwrap_or_default().into_owned()
    }

    /// The value of the first `:name` in the path.
    pub fn id(&self) -> &str {
        self.parameters.first().map_or("", String::as_str)
    }

    /// The number of entries of a list to skip.
    pub fn offset(&self) -> usize {
        self.parameter("offset").parse().unwrap_or(0)
    }
}

impl Asking {
    /// A caller with the rights of `asker`, by this request.
    pub(in crate::routes) fn new(app: App, asker: Principal, request: &Request) -> Self {
        let zone = asker.project.timezone.parse().unwrap_or(Tz::UTC);
        let server = base_url(request, app.node.config.http.public_url.as_deref());
        let (memory, held) = (request.memory(), Mutex::default());
        Self { app, asker, zone, server, memory, held }
    }

    /// The id of the project.
    pub fn project(&self) -> i64 {
        self.asker.project.id.0
    }

    /// Whether the key grants a scope.
    pub fn may(&self, scope: &str) -> bool {
        self.asker.key.grants(scope)
    }

    /// The memory budget for what is read for the page.
    pub(in crate::routes) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Holds a reservation until the page is complete.
    pub(in crate::routes) fn keep(&self, held: Reservation) {
        self.held.lock().push(held);
    }

    /// Performs an operation with the rights of the visitor.
    ///
    /// # Errors
    ///
    /// 403 if the visitor lacks the rights; else those of the operation.
    pub async fn perform<O: Operation>(&self, operation: O) -> Result<O::Out, Problem> {
        let who = O::Who::of_page(&self.app.node.metadata.snapshot(), &self.asker)?;
        let (app, rendering, memory) = (self.app.clone(), Rendering::Json, self.memory());
        let cx = Context { app, who, rendering, memory, is_drawn: true };
        cx.perform(operation).await
    }

    /// As [`Self::perform`]; `None` if the key does not grant the scope, so that a page shows only what its visitor may
    /// see.
    pub async fn if_may<O: Operation>(&self, operation: O) -> Result<Option<O::Out>, Problem> {
        match self.may(O::SCOPE) {
            true => self.perform(operation).await.map(Some),
            false => Ok(None),
        }
    }

    /// Runs SQL and returns its rows.
    ///
    /// # Errors
    ///
    /// Those of the query; 413 for a result that is too long for a page.
    pub async fn sql(&self, sql: &str) -> Result<Rows, Problem> {
        match self.perform(Query::rows(sql)).await? {
            Answer::Node(told) => self.rows_of(told.answer).await,
            _ => Err(Problem::not_acceptable()),
        }
    }

    /// The rows of a result that consists of rows. Their memory is counted until the page is complete.
    ///
    /// # Errors
    ///
    /// 413 for a result that is too long for a page; 503 if the memory budget is used up.
    pub(in crate::routes) async fn rows_of(
        &self,
        answer: Arc<cache::Answer>,
    ) -> Result<Rows, Problem> {
        if answer.results.len() > ANSWER_MAX_BYTES {
            return Err(too_long());
        }
        if answer.results.len() <= PARSED_HERE_MAX_BYTES {
            return rows(&answer);
        }
        let mut held = self.memory.reservation();
        held.hold_parsed(&answer.results)?;
        self.keep(held);
        beside(&self.app.node.cpu, move || rows(&answer)).await
    }
}

fn too_long() -> Problem {
    let detail = "The result is too long for a page. Narrow the query, or use the API.";
    Problem::new(Kind::TooLarge, "answer_too_large", detail)
}

/// Reads the form in the body of a request.
///
/// # Errors
///
/// The body cannot be read, or is too long.
pub async fn form(request: Request) -> Result<Parameters, Problem> {
    let body = request.body.read(FORM_MAX_BYTES).await?;
    Ok(Parameters::of_form(&body))
}

/// The problem for an invalid URL or form.
pub fn wrong(error: &Wrong) -> Problem {
    Problem::new(Kind::Invalid, "invalid_input", error.to_string())
}

/// A redirect after a form, or to another page.
///
/// # Errors
///
/// The URL has characters that no header may contain.
pub fn see_other(address: &str) -> Result<Response, Problem> {
    let address =
        HeaderValue::from_str(address).map_err(|error| Problem::of(Kind::Internal, &error))?;
    Ok(Response::empty(StatusCode::SEE_OTHER).with_header(header::LOCATION, address))
}

/// Redirects away from a form that the key may not submit; `None` if it may.
pub fn turned_back(asking: &Asking, scope: &str, path: &str) -> Result<Option<Sent>, Problem> {
    if asking.may(scope) {
        return Ok(None);
    }
    let address = parts::page(asking.project(), path);
    Ok(Some(Sent::Other(see_other(&address)?)))
}

/// Adds a file name, so that browsers download the response.
pub fn file(response: Response, name: &str) -> Response {
    match HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        Ok(value) => response.with_header(header::CONTENT_DISPOSITION, value),
        Err(_) => response,
    }
}
