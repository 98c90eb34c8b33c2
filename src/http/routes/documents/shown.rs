//! Results of operations on documents. The fields of a document are copied to the response as they are stored, so the
//! results are [`Members`] with the schema of a type.

use std::marker::PhantomData;

use hyper::StatusCode;
use schemars::JsonSchema;

use crate::auth::Principal;
use crate::members::Members;
use crate::openapi::{Shape, Success};
use crate::operation::Context;
use crate::operation::output::{Output, Reply};
use crate::response::{Problem, Response};
use crate::routes::documents::results::ResultsRequest;
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::tiles;
use crate::routes::documents::tiles::Whole;
use weir_api::documents as api;
use weir_base::error::Kind as ErrorKind;
use weir_metadata::documents::{Document, DocumentText};

/// An object that is written without being parsed; its schema is that of `S`.
#[derive(Debug)]
pub struct Shown<S> {
    whole: Whole,
    schema: PhantomData<fn() -> S>,
}

impl<S> From<Whole> for Shown<S> {
    fn from(whole: Whole) -> Self {
        Self { whole, schema: PhantomData }
    }
}

impl<S> Shown<S> {
    /// A document with its results, obtained as `asked` defines.
    ///
    /// # Errors
    ///
    /// A result cannot be computed; the memory budget is used up.
    pub(super) async fn of(
        cx: &Context<Principal>,
        document: &DocumentText,
        asked: &ResultsRequest,
    ) -> Result<Self, Problem> {
        let viewer = Viewer::from(&cx.who);
        let whole = tiles::whole(&cx.app, document, &viewer, (asked, &cx.memory)).await?;
        Ok(Self::from(whole))
    }

    /// A changed document, with cached results only.
    ///
    /// # Errors
    ///
    /// The memory budget is used up.
    pub(super) async fn changed(
        cx: &Context<Principal>,
        document: &Document,
    ) -> Result<Self, Problem> {
        Self::of(cx, &DocumentText::of(document), &ResultsRequest::kept()).await
    }

    async fn answer(self, status: StatusCode, reply: &Reply<'_>) -> Result<Response, Problem> {
        let Whole { body, held } = self.whole;
        body.answer(&reply.app.node.cpu, status, (&reply.request.memory(), held)).await
    }
}

impl<S: JsonSchema> Output for Shown<S> {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<S>(StatusCode::OK, "The answer"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        self.answer(StatusCode::OK, reply).await
    }
}

/// A created document.
#[derive(Debug)]
pub struct Made<S> {
    /// The id.
    pub id: i64,
    /// The id in the paths of pages; empty for other kinds than insights.
    pub short_id: String,
    /// The document.
    pub shown: Shown<S>,
}

impl<S: JsonSchema> Output for Made<S> {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<S>(StatusCode::CREATED, "The answer"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        self.shown.answer(StatusCode::CREATED, reply).await
    }
}

/// Insights that the user viewed.
#[derive(Debug)]
pub struct Seen {
    /// The most recent first.
    pub(super) bodies: Vec<Members>,
}

impl Output for Seen {
    fn describe(shape: &mut Shape) {
        let success = Success::of::<Vec<api::Insight>>(StatusCode::OK, "The answer");
        shape.success = Some(success);
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let mut text = vec![b'['];
        for body in &self.bodies {
            if text.len() > 1 {
                text.push(b',');
            }
            body.write(&mut text).map_err(|error| Problem::of(ErrorKind::Internal, &error))?;
        }
        text.push(b']');
        let answer = reply.request.memory().reservation().counted(text)?;
        Ok(Response::counted_json(StatusCode::OK, &answer))
    }
}
