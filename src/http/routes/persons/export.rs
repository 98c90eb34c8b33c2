//! CSV export of persons, streamed. Two passes over one snapshot, the first for the columns and the
//! second for the rows, so that memory does not depend on the length.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use tokio::sync::mpsc::Sender;
use tokio_stream::wrappers::ReceiverStream;

use crate::auth::Principal;
use crate::csv;
use crate::csv::Columns;
use crate::operation::Context;
use crate::response::{Problem, Response, StreamError};
use crate::routes::persons::LISTED_IDS_MAX;
use crate::routes::persons::body::listed;
use crate::routes::query;
use weir_app::App;
use weir_identity::IdentityError;
use weir_metadata::accounts::Project;
use weir_query::persons::people::{Found, Part, PersonsQuestion};

/// Most rows of a file (PostHog's figure).
const LINES_MAX: usize = 300_000;

/// Bytes per piece.
const PIECE_BYTES: usize = 64 * 1024;

type Piece = Result<Bytes, StreamError>;

/// All persons that match a query, up to [`LINES_MAX`].
#[derive(Debug)]
pub struct Export {
    found: Found,
    project: Arc<Project>,
}

impl Export {
    /// Finds the persons.
    pub(super) async fn of(
        cx: &Context<Principal>,
        question: PersonsQuestion,
    ) -> Result<Self, Problem> {
        let (all, project) = (Part { offset: 0, limit: LINES_MAX }, Arc::clone(&cx.who.project));
        let found = cx.app.engine.find_persons(project.id, question, all).await;
        Ok(Self { found: found.map_err(query::problem)?, project })
    }

    /// The response, whose pieces are written while it is sent.
    pub(super) async fn respond(self, app: &App) -> Result<Response, Problem> {
        let written = app.engine.produce(move |pieces: Sender<Piece>| {
            if let Err(error) = write(&self.found, &self.project, &pieces) {
                // An error here means that the client has gone.
                let _ = pieces.blocking_send(Err(Box::new(error)));
            }
        });
        let pieces = ReceiverStream::new(written.await.map_err(query::problem)?);
        Ok(Response::stream(StatusCode::OK, csv::MEDIA_TYPE, pieces))
    }
}

fn write(found: &Found, project: &Project, pieces: &Sender<Piece>) -> Result<(), IdentityError> {
    let row = |person, ids| serde_json::to_value(listed(project, person, ids));
    let mut columns = Columns::default();
    let mut failed = None;
    found.each(LISTED_IDS_MAX, |person, ids| {
        match row(person, ids) {
            Ok(row) => columns.add(&row),
            Err(error) => failed = Some(error),
        }
        if pieces.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let mut text = columns.head();
    found.each(LISTED_IDS_MAX, |person, ids| {
        match row(person, ids) {
            Ok(row) => columns.write(&row, &mut text),
            Err(error) => failed = Some(error),
        }
        if text.len() < PIECE_BYTES {
            return ControlFlow::Continue(());
        }
        match pieces.blocking_send(Ok(std::mem::take(&mut text).into())) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    // An error here means that the client has gone.
    let _ = pieces.blocking_send(Ok(text.into()));
    Ok(())
}
