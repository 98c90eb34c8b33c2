//! What operations give, and how it is answered: a value as JSON with 200, [`Long`], [`Created`], [`Done`], [`Listed`],
//! [`Paged`], [`Whole`]; [`Never`].
//! Each says its own schema.

use std::future::Future;

use hyper::StatusCode;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use crate::beside::beside;
use crate::budget::{Counted, Memory};
use crate::call::Rendering;
use crate::csv;
use crate::openapi::{Paging, Shape, Success};
use crate::page::{Envelope, Page};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::rows::{Added, Rows};
use weir_app::App;
use weir_base::error::Kind;
use weir_base::tasks::CpuPool;

/// How the text of a page without rows ends.
const NO_RESULTS: &str = ",\"results\":[]}";

/// What an operation gives.
pub trait Output: Send + Sized {
    /// Adds it to the description.
    fn describe(shape: &mut Shape);

    /// The response with it.
    ///
    /// # Errors
    ///
    /// The server stops, or has no memory for the response.
    fn respond(self, reply: &Reply<'_>) -> impl Future<Output = Result<Response, Problem>> + Send;
}

/// What a response depends on besides what it says.
#[derive(Debug)]
pub struct Reply<'r> {
    /// The engines.
    pub(crate) app: &'r App,
    /// The head of the request.
    pub(crate) request: &'r Request,
    /// The format.
    pub(crate) rendering: Rendering,
}

/// The description of an answer with a `T`.
pub(crate) fn success<T: JsonSchema>(status: &'static str, says: &'static str) -> Option<Success> {
    Some(Success { status, says, schema: Some(SchemaGenerator::subschema_for::<T>) })
}

impl<T: Serialize + JsonSchema + Send> Output for T {
    fn describe(shape: &mut Shape) {
        shape.success = success::<T>("200", "The answer");
    }

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        Ok(Response::json(StatusCode::OK, &self))
    }
}

/// Something that was made; answered with 201.
#[derive(Debug)]
pub struct Created<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Output for Created<T> {
    fn describe(shape: &mut Shape) {
        shape.success = success::<T>("201", "The answer");
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        csv::answer(&reply.app.node.cpu, StatusCode::CREATED, reply.rendering, self.0).await
    }
}

/// Something that was changed, and may be changed further; answered with 202.
#[derive(Debug)]
pub struct Accepted<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Output for Accepted<T> {
    fn describe(shape: &mut Shape) {
        shape.success = success::<T>("202", "The answer");
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        csv::answer(&reply.app.node.cpu, StatusCode::ACCEPTED, reply.rendering, self.0).await
    }
}

/// A value that may be long; written beside the threads of sockets, as JSON or as CSV where the row says so.
#[derive(Debug)]
pub struct Long<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Output for Long<T> {
    fn describe(shape: &mut Shape) {
        shape.success = success::<T>("200", "The answer");
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        csv::answer(&reply.app.node.cpu, StatusCode::OK, reply.rendering, self.0).await
    }
}

/// What was asked for is done, or goes on; answered with 202 and no content.
#[derive(Debug)]
pub struct Taken;

impl Output for Taken {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success { status: "202", says: "Done", schema: None });
    }

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        Ok(Response::empty(StatusCode::ACCEPTED))
    }
}

/// There is nothing to tell; answered with 204.
#[derive(Debug)]
pub struct Done;

impl Output for Done {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success { status: "204", says: "Done", schema: None });
    }

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        Ok(Response::empty(StatusCode::NO_CONTENT))
    }
}

/// Nothing: the operation is always refused.
#[derive(Debug)]
pub enum Never {}

impl Output for Never {
    fn describe(_: &mut Shape) {}

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        match self {}
    }
}

/// All items of a list; written beside the threads of sockets.
#[derive(Debug)]
pub struct Whole<T>(pub Vec<T>);

impl<T: Serialize + JsonSchema + Send + 'static> Output for Whole<T> {
    fn describe(shape: &mut Shape) {
        shape.paging = Paging::Whole;
        shape.success = success::<Vec<T>>("200", "The answer");
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        csv::answer(&reply.app.node.cpu, StatusCode::OK, reply.rendering, self.0).await
    }
}

/// A page of a list; written beside the threads of sockets, as JSON or as CSV where the row says so.
#[derive(Debug)]
pub struct Listed<T> {
    /// Which page.
    pub page: Page,
    /// Items of the whole list.
    pub count: usize,
    /// The items of the page.
    pub results: Vec<T>,
}

impl<T> Listed<T> {
    /// The page of a list that is there as a whole.
    pub fn part_of<I>(page: Page, all: I, show: impl FnMut(I::Item) -> T) -> Self
    where
        I: IntoIterator<IntoIter: ExactSizeIterator>,
    {
        let all = all.into_iter();
        let count = all.len();
        Self { page, count, results: all.skip(page.offset).take(page.limit).map(show).collect() }
    }
}

impl<T> Listed<T> {
    /// Whether there are items after those of the page.
    pub fn has_next(&self) -> bool {
        let shown = self.results.len();
        shown > 0 && self.page.offset.saturating_add(shown) < self.count
    }
}

impl<T: Serialize + JsonSchema + Send + 'static> Output for Listed<T> {
    fn describe(shape: &mut Shape) {
        shape.success = success::<Envelope<T>>("200", "A page of the list");
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let public_url = reply.app.node.config.http.public_url.as_deref();
        let envelope = self.page.envelope(reply.request, public_url, self.count, self.results);
        csv::answer(&reply.app.node.cpu, StatusCode::OK, reply.rendering, envelope).await
    }
}

/// A page of a long list, whose rows are written as they are found.
#[derive(Debug)]
pub struct Paged<T> {
    /// Which page.
    pub page: Page,
    /// Items of the whole list.
    pub count: usize,
    /// The items of the page.
    pub rows: PageRows<T>,
}

impl<T: Serialize> Paged<T> {
    /// Whether there are items after those of the page.
    pub fn has_next(&self) -> bool {
        let shown = self.rows.count();
        shown > 0 && self.page.offset.saturating_add(shown) < self.count
    }
}

impl<T: Serialize + JsonSchema + Send> Output for Paged<T> {
    fn describe(shape: &mut Shape) {
        shape.success = success::<Envelope<T>>("200", "A page of the list");
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        self.page.finished(reply.app, reply.request, self.count, self.rows.written)
    }
}

/// The rows of a page: as text, which ends at a number of bytes, and as values, too, where they are drawn.
#[derive(Debug)]
pub struct PageRows<T> {
    written: Rows,
    values: Option<Vec<T>>,
}

impl<T: Serialize> PageRows<T> {
    /// None yet.
    pub(super) fn new(memory: &Memory, bytes_max: usize, are_drawn: bool) -> Self {
        Self { written: Rows::within(memory, bytes_max), values: are_drawn.then(Vec::new) }
    }

    /// Adds a row, unless the page is full.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    pub(crate) fn add(&mut self, row: T) -> Result<Added, Problem> {
        let added = self.written.add(&row)?;
        if let (Some(values), Added::Yes) = (&mut self.values, added) {
            values.push(row);
        }
        Ok(added)
    }

    /// Adds what `write` adds, beside the threads of sockets.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub(crate) async fn add_on(
        mut self,
        cpu: &CpuPool,
        write: impl FnOnce(&mut Self) -> Result<Added, Problem> + Send + 'static,
    ) -> Result<(Self, Added), Problem>
    where
        T: Send + 'static,
    {
        beside(cpu, move || write(&mut self).map(|added| (self, added))).await
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.written.count()
    }

    /// The text of `page`, which is without rows, with these as its last member `results`.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    pub(crate) fn within(self, page: &impl Serialize) -> Result<Counted, Problem> {
        let head = serde_json::to_string(page);
        let head = head.map_err(|error| Problem::of(Kind::Internal, &error))?;
        let head = head.strip_suffix(NO_RESULTS).unwrap_or(&head);
        Ok(self.written.within_object(head)?)
    }

    /// The rows to draw.
    pub fn into_values(self) -> Vec<T> {
        self.values.unwrap_or_default()
    }
}
