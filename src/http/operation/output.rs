//! Results of operations and their responses: a value as JSON with 200, [`Long`], [`Created`], [`Accepted`], [`Whole`];
//! nothing, [`Noted`], [`Taken`], [`Done`]; a page of a list, [`Listed`] and [`Paged`]; [`Never`]. Each describes its
//! own schema.

use std::future::Future;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::beside::beside;
use crate::budget::{Counted, Memory, Reservation};
use crate::objects;
use crate::openapi::{Paging, Shape, Success};
use crate::page::{Envelope, Page};
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::rows::{Added, Rows};
use weir_app::App;
use weir_base::error::Kind;
use weir_base::tasks::CpuPool;
use weir_event::json;

/// The end of the text of a page without rows.
const NO_RESULTS: &str = ",\"results\":[]}";

/// The result of an operation.
pub trait Output: Send + Sized {
    /// Adds the response to the OpenAPI description.
    fn describe(shape: &mut Shape);

    /// The response with this result.
    ///
    /// # Errors
    ///
    /// The server stops, or the memory budget has no space for the response.
    fn respond(self, reply: &Reply<'_>) -> impl Future<Output = Result<Response, Problem>> + Send;
}

/// Parts of a request that determine the form of its response.
#[derive(Debug)]
pub struct Reply<'r> {
    /// The engines.
    pub(crate) app: &'r App,
    /// The head of the request.
    pub(crate) request: &'r Request,
    /// The format.
    pub(crate) rendering: Rendering,
}

impl<T: Serialize + JsonSchema + Send> Output for T {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<T>(StatusCode::OK, "The answer"));
    }

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        Ok(Response::json(StatusCode::OK, &self))
    }
}

/// Responses with one value, written outside the threads of sockets.
macro_rules! values {
    ($($(#[doc = $about:literal])* $name:ident($value:ty), $status:ident, $paging:ident;)*) => {$(
        $(#[doc = $about])*
        #[derive(Debug)]
        pub struct $name<T>(pub $value);

        impl<T: Serialize + JsonSchema + Send + 'static> Output for $name<T> {
            fn describe(shape: &mut Shape) {
                shape.paging = Paging::$paging;
                shape.success = Some(Success::of::<$value>(StatusCode::$status, "The answer"));
            }

            async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
                let cpu = &reply.app.node.cpu;
                objects::answer(cpu, StatusCode::$status, reply.rendering, self.0).await
            }
        }
    )*};
}

values! {
    /// A created object; answered with 201.
    Created(T), CREATED, None;
    /// An object that was changed, and may be changed further; answered with 202.
    Accepted(T), ACCEPTED, None;
    /// A value that may be long, as JSON, or as a file if the row of the table permits it.
    Long(T), OK, None;
    /// All items of a list.
    Whole(Vec<T>), OK, Whole;
}

/// Responses without content.
macro_rules! empty {
    ($($(#[doc = $about:literal])* $name:ident, $status:ident, $says:literal;)*) => {$(
        $(#[doc = $about])*
        #[derive(Debug)]
        pub struct $name;

        impl Output for $name {
            fn describe(shape: &mut Shape) {
                let status = StatusCode::$status;
                shape.success = Some(Success { status, says: $says, schema: None });
            }

            async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
                Ok(Response::empty(StatusCode::$status))
            }
        }
    )*};
}

empty! {
    /// The request is recorded; answered with 201.
    Noted, CREATED, "Noted";
    /// The requested work is done, or goes on; answered with 202.
    Taken, ACCEPTED, "Done";
    /// There is nothing to return; answered with 204.
    Done, NO_CONTENT, "Done";
}

/// No result: the operation is always refused.
#[derive(Debug)]
pub enum Never {}

impl Output for Never {
    fn describe(_: &mut Shape) {}

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        match self {}
    }
}

/// A list, or a page of one.
pub(crate) trait Items: Output {
    /// The items, as clients get them; adds their memory to `held`.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    fn into_items(self, held: &mut Reservation) -> Result<Vec<Value>, Problem>;

    /// Whether there are items after those of the page.
    fn has_next(&self) -> bool;
}

/// Converts an item to the JSON that clients get, and counts its memory in `held`.
pub(crate) fn as_value(
    held: &mut Reservation,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<Value, Problem> {
    let failed = |error| Problem::of(Kind::Internal, &error);
    let mut text = Vec::new();
    write(&mut text).map_err(failed)?;
    held.hold_parsed(&text)?;
    json::restore(&text).map_err(failed)
}

/// As [`as_value`], for all items of a list.
pub(crate) fn as_values<T: Serialize>(
    items: Vec<T>,
    held: &mut Reservation,
) -> Result<Vec<Value>, Problem> {
    let one = |item: T| as_value(held, |text| serde_json::to_writer(text, &item));
    items.into_iter().map(one).collect()
}

/// A page of a list; written outside the threads of sockets, as JSON, or as a file if the row of the table permits
/// it.
#[derive(Debug)]
pub struct Listed<T> {
    /// The requested page.
    pub page: Page,
    /// Items of the whole list.
    pub count: usize,
    /// The items of the page.
    pub results: Vec<T>,
}

impl<T> Listed<T> {
    /// A page of a list that is in memory as a whole.
    pub fn part_of<I>(page: Page, all: I, show: impl FnMut(I::Item) -> T) -> Self
    where
        I: IntoIterator<IntoIter: ExactSizeIterator>,
    {
        let all = all.into_iter();
        let count = all.len();
        Self { page, count, results: all.skip(page.offset).take(page.limit).map(show).collect() }
    }
}

impl<T: Serialize + JsonSchema + Send + 'static> Items for Listed<T> {
    fn into_items(self, held: &mut Reservation) -> Result<Vec<Value>, Problem> {
        as_values(self.results, held)
    }

    fn has_next(&self) -> bool {
        self.page.next(self.count, self.results.len()).is_some()
    }
}

impl<T: Serialize + JsonSchema + Send + 'static> Output for Listed<T> {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<Envelope<T>>(StatusCode::OK, "A page of the list"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let public_url = reply.app.node.config.http.public_url.as_deref();
        let envelope = self.page.envelope(reply.request, public_url, self.count, self.results);
        objects::answer(&reply.app.node.cpu, StatusCode::OK, reply.rendering, envelope).await
    }
}

/// A page of a long list, whose rows are serialized as they are found.
#[derive(Debug)]
pub struct Paged<T> {
    /// The requested page.
    pub page: Page,
    /// Items of the whole list.
    pub count: usize,
    /// The items of the page.
    pub rows: PageRows<T>,
}

impl<T: Serialize + JsonSchema + Send> Items for Paged<T> {
    fn into_items(self, held: &mut Reservation) -> Result<Vec<Value>, Problem> {
        as_values(self.rows.into_values(), held)
    }

    fn has_next(&self) -> bool {
        self.page.next(self.count, self.rows.count()).is_some()
    }
}

impl<T: Serialize + JsonSchema + Send> Output for Paged<T> {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<Envelope<T>>(StatusCode::OK, "A page of the list"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        self.page.finished(reply.app, reply.request, self.count, self.rows.written)
    }
}

/// The rows of a page: as text, limited to a number of bytes, and also as values if a page renders them.
#[derive(Debug)]
pub struct PageRows<T> {
    written: Rows,
    values: Option<Vec<T>>,
}

impl<T: Serialize> PageRows<T> {
    /// No rows yet.
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

    /// Adds all rows, until the page is full.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    pub(crate) fn add_all(&mut self, rows: impl IntoIterator<Item = T>) -> Result<Added, Problem> {
        for row in rows {
            if self.add(row)? == Added::PageIsFull {
                return Ok(Added::PageIsFull);
            }
        }
        Ok(Added::Yes)
    }

    /// Runs `write`, which adds rows, outside the threads of sockets.
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

    /// The text of `page`, which has no rows, with these rows as its last member `results`.
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

    /// The rows to render.
    pub fn into_values(self) -> Vec<T> {
        self.values.unwrap_or_default()
    }
}
