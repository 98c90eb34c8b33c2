//! One request for a page: [`Visit`], with who asks for it, by whose rights operations load what it shows ([`Asking`]), and
//! what a page returns: [`Sent`].

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

use crate::auth;
use crate::auth::Principal;
use crate::beside::beside;
use crate::budget::{Memory, Reservation};
use crate::operation::{Caller, Context, Operation};
use crate::page::base_url;
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::flag_events::Subscribers;
use crate::routes::query;
use crate::routes::query::Query;
use crate::routes::query::answer::{Answer, rows};
use crate::throttle::{Attempts, Throttle};
use weir_api::query::Rows;
use weir_app::App;
use weir_base::error::Kind;
use weir_base::tasks::Shutdown;
use weir_metadata::sessions::Session;
use weir_query::kernel::engine::Engine;
use weir_web::parts;
use weir_web::state::parameters::{Parameters, Wrong};

/// Longest form, in bytes.
const FORM_MAX_BYTES: u64 = 1 << 20;

/// Longest rows of SQL that a page shows, in bytes.
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// Longest ones that are parsed where sockets are served.
const PARSED_HERE_MAX_BYTES: usize = 64 << 10;

/// State of all pages.
#[derive(Debug)]
pub struct Desk {
    /// Limits of keys, shared with the API.
    pub throttle: Arc<Throttle>,
    /// The limit on sign-ins.
    pub sign_ins: Attempts<IpAddr>,
    /// Open streams.
    pub streams: Subscribers,
    /// Cancelled when the server stops.
    pub ending: Shutdown,
}

/// What the function of a page returns.
pub type Drawing = Pin<Box<dyn Future<Output = Result<Sent, Problem>> + Send>>;

/// What is sent when a page is asked for.
pub enum Sent {
    /// A page.
    Page(Page),
    /// Something else, such as a file.
    Other(Response),
}

/// What stands within the frame of a page.
pub struct Page {
    /// The status of the response.
    pub status: StatusCode,
    /// The title.
    pub title: String,
    /// What is sent before anything is computed.
    pub now: Markup,
    /// What follows: each part is computed while those before it are sent.
    pub later: Vec<Later>,
    /// Whether the parts are sent in the order in which they are ready, since each has its place in the page.
    pub is_in_any_order: bool,
    /// What comes after that.
    pub end: Markup,
}

/// A part of a page that is being computed.
pub type Later = Pin<Box<dyn Future<Output = Markup> + Send>>;

/// A part of a page on the threads of queries: it asks them, and makes markup of what they answer.
pub fn apart(engine: &Engine, later: Later) -> Later {
    let engine = engine.clone();
    Box::pin(async move {
        let part = engine.apart(later).await.map_err(query::problem);
        part.unwrap_or_else(|problem| parts::failed(problem.detail()))
    })
}

impl Page {
    /// A page that is complete.
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

    /// The same with a part that is computed after what is there is sent. A failure is shown in its place.
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

/// A request for a page, by somebody who may see it.
pub struct Visit {
    /// Who asks, and where.
    pub asking: Arc<Asking>,
    /// The values of the `:names` in the path, decoded, without the project.
    pub parameters: Vec<String>,
    /// The session, if a cookie signed in.
    pub session: Option<Session>,
    /// The request, its body unread.
    pub request: Request,
    /// State of all pages.
    pub desk: Arc<Desk>,
}

/// Who asks for a page: loads by the functions of the API, with the rights that these check.
pub struct Asking {
    /// The engines.
    pub app: App,
    /// Who asks, and the project.
    pub asker: Principal,
    /// The zone of the project, in which times are shown.
    pub zone: Tz,
    /// The address of this server, as the reader has it.
    pub server: String,
    /// The budget for what is read for the page.
    memory: Memory,
    /// Memory of what the page is made of.
    held: Mutex<Vec<Reservation>>,
}

impl Visit {
    /// The visit of `asker`.
    pub fn new(
        app: App,
        asker: Principal,
        (parameters, session): (Vec<String>, Option<Session>),
        request: Request,
        desk: &Arc<Desk>,
    ) -> Self {
        let zone = asker.project.timezone.parse().unwrap_or(Tz::UTC);
        let server = base_url(&request, app.node.config.http.public_url.as_deref());
        let held = Mutex::default();
        let memory = request.memory();
        let asking = Arc::new(Asking { app, asker, zone, server, memory, held });
        Self { asking, parameters, session, request, desk: Arc::clone(desk) }
    }

    /// The id of the project.
    pub fn project(&self) -> i64 {
        self.asking.project()
    }

    /// The request with its body; without one if it was taken before.
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
    /// The id of the project.
    pub fn project(&self) -> i64 {
        self.asker.project.id.0
    }

    /// Whether the key grants a scope.
    pub fn may(&self, scope: &str) -> bool {
        auth::grants(&self.asker.key, scope)
    }

    /// The memory budget for what is read for the page.
    pub(in crate::routes) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Keeps memory of the budget until the page is made.
    pub(in crate::routes) fn keep(&self, held: Reservation) {
        self.held.lock().push(held);
    }

    /// What an operation gives whoever looks at the page.
    ///
    /// # Errors
    ///
    /// 403 without the rights to it; else those of the operation.
    pub async fn perform<O: Operation>(&self, operation: O) -> Result<O::Out, Problem> {
        let who = O::Who::of_page(&self.app.node.metadata.snapshot(), &self.asker)?;
        let (app, rendering, memory) = (self.app.clone(), Rendering::Json, self.memory());
        let cx = Context { app, who, rendering, memory, is_drawn: true };
        cx.perform(operation).await
    }

    /// The same; `None` where the key does not grant its scope, so that a page shows what its reader may see.
    pub async fn if_may<O: Operation>(&self, operation: O) -> Result<Option<O::Out>, Problem> {
        match self.may(O::SCOPE) {
            true => self.perform(operation).await.map(Some),
            false => Ok(None),
        }
    }

    /// The rows of SQL.
    ///
    /// # Errors
    ///
    /// Those of the query; 413 for more than a page shows.
    pub async fn sql(&self, sql: &str) -> Result<Rows, Problem> {
        let answer = match self.perform(Query::rows(sql)).await? {
            Answer::Told(told) => told.answer,
            _ => return Err(Problem::not_acceptable()),
        };
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
/// The body cannot be read, or is longer than a form is.
pub async fn form(request: Request) -> Result<Parameters, Problem> {
    let body = request.body.read(FORM_MAX_BYTES).await?;
    Ok(Parameters::of_form(&body))
}

/// The refusal of an address or a form.
pub fn wrong(error: &Wrong) -> Problem {
    Problem::new(Kind::Invalid, "invalid_input", error.to_string())
}

/// A redirection after a form, or to another page.
///
/// # Errors
///
/// The address has characters that no header may have.
pub fn see_other(address: &str) -> Result<Response, Problem> {
    let address =
        HeaderValue::from_str(address).map_err(|error| Problem::of(Kind::Internal, &error))?;
    Ok(Response::empty(StatusCode::SEE_OTHER).with_header(header::LOCATION, address))
}

/// Leads away from a form that the key may not send; `None` for those who may.
pub fn turned_back(asking: &Asking, scope: &str, path: &str) -> Result<Option<Sent>, Problem> {
    if asking.may(scope) {
        return Ok(None);
    }
    let address = parts::page(asking.project(), path);
    Ok(Some(Sent::Other(see_other(&address)?)))
}

/// A file to download.
pub fn file(response: Response, name: &str) -> Response {
    match HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        Ok(value) => response.with_header(header::CONTENT_DISPOSITION, value),
        Err(_) => response,
    }
}
