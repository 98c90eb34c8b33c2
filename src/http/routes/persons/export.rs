//! Export of persons as a file, streamed. CSV takes two passes over one snapshot, the first for the columns and the
//! second for the rows, so that memory does not depend on the length; the columns of other formats are known.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use crate::auth::Principal;
use crate::csv::Columns;
use crate::operation::Context;
use crate::response::{Problem, Response};
use crate::routes::persons::LISTED_IDS_MAX;
use crate::routes::persons::body::listed;
use crate::routes::query::{answer, problems};
use weir_base::error::Kind;
use weir_identity::IdentityError;
use weir_metadata::accounts::Project;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::files::File;
use weir_query::output::format::Format;
use weir_query::output::value_rows;
use weir_query::output::value_rows::ValueFile;
use weir_query::persons::people::{FoundPersons, Part, PersonsQuestion};

/// Most persons of a file, whose numbers are in memory.
const LINES_MAX: usize = 3_000_000;

/// Bytes per piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Rows that are written at once to files with types.
const ROWS: usize = 256;

/// The columns of files with types.
const COLUMNS: [(&str, value_rows::Kind); 7] = [
    ("id", value_rows::Kind::Whole),
    ("uuid", value_rows::Kind::Text),
    ("name", value_rows::Kind::Text),
    ("distinct_ids", value_rows::Kind::Text),
    ("created_at", value_rows::Kind::Text),
    ("is_identified", value_rows::Kind::Flag),
    ("properties", value_rows::Kind::Text),
];

/// All persons that match a query, as a file.
#[derive(Debug)]
pub struct Export {
    file: File,
    format: Format,
}

impl Export {
    /// Finds the persons, and begins to write the file.
    pub(super) async fn of(
        cx: &Context<Principal>,
        question: PersonsQuestion,
        format: Format,
    ) -> Result<Self, Problem> {
        let (all, project) = (Part { offset: 0, limit: LINES_MAX }, Arc::clone(&cx.who.project));
        let found = cx.app.engine.find_persons(project.id, question, all).await;
        let found = found.map_err(problems::problem)?;
        if found.count > LINES_MAX {
            let detail = format!(
                "These are more than {LINES_MAX} persons: a query of SQL has any number of rows."
            );
            return Err(Problem::new(Kind::Invalid, "too_many_rows", detail));
        }
        let file = cx.app.engine.produced(move |parts| {
            let export = Writing { found: &found, project: &project, parts };
            if let Err(error) = export.write(format) {
                // An error here means that the client has gone.
                let _ = parts.blocking_send(Err(error));
            }
        });
        Ok(Self { file: file.await.map_err(problems::problem)?, format })
    }

    /// The response, whose pieces are written while it is sent.
    pub(super) fn respond(self) -> Response {
        answer::file(self.format, self.file)
    }
}

/// A file that is being written.
struct Writing<'w> {
    found: &'w FoundPersons,
    project: &'w Project,
    parts: &'w Sender<Result<Bytes, QueryError>>,
}

impl Writing<'_> {
    fn write(&self, format: Format) -> Result<(), QueryError> {
        match format {
            Format::Csv => self.csv(),
            Format::Json | Format::JsonLines => self.lines(),
            format => self.typed(format),
        }
    }

    /// Calls `add` for each person, until it fails, or the reader is gone: a `Break` means that.
    fn each(
        &self,
        mut add: impl FnMut(Value) -> Result<ControlFlow<()>, QueryError>,
    ) -> Result<(), QueryError> {
        let mut failed = None;
        self.found.each(LISTED_IDS_MAX, |person, ids| {
            let row = serde_json::to_value(listed(self.project, person, ids));
            let row = row.map_err(IdentityError::from).map_err(QueryError::from);
            row.and_then(&mut add).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn send(&self, part: Vec<u8>) -> ControlFlow<()> {
        match part.is_empty() || self.parts.blocking_send(Ok(part.into())).is_ok() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    /// Sends `text` if it is long enough.
    fn send_full(&self, text: &mut Vec<u8>) -> ControlFlow<()> {
        match text.len() < PIECE_BYTES {
            true => ControlFlow::Continue(()),
            false => self.send(std::mem::take(text)),
        }
    }

    fn csv(&self) -> Result<(), QueryError> {
        let mut columns = Columns::default();
        self.each(|row| {
            columns.add(&row);
            Ok(match self.parts.is_closed() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        let (mut text, mut line) = (columns.head().into_bytes(), String::new());
        self.each(|row| {
            line.clear();
            columns.write(&row, &mut line);
            text.extend_from_slice(line.as_bytes());
            Ok(self.send_full(&mut text))
        })?;
        let _ = self.send(text);
        Ok(())
    }

    fn lines(&self) -> Result<(), QueryError> {
        let mut text = Vec::new();
        self.each(|row| {
            text.extend_from_slice(row.to_string().as_bytes());
            text.push(b'\n');
            Ok(self.send_full(&mut text))
        })?;
        let _ = self.send(text);
        Ok(())
    }

    fn typed(&self, format: Format) -> Result<(), QueryError> {
        // What cannot be written is a bug, and no mistake of the client.
        let mut file =
            ValueFile::new(format, &COLUMNS).map_err(|error| QueryError::Internal(error.into()))?;
        let mut rows: Vec<Vec<Value>> = Vec::with_capacity(ROWS);
        let mut add = |rows: &mut Vec<Vec<Value>>| -> Result<ControlFlow<()>, QueryError> {
            let part = file.add(rows).map_err(|error| QueryError::Internal(error.into()))?;
            rows.clear();
            Ok(self.send(part))
        };
        self.each(|row| {
            rows.push(cells(row));
            if rows.len() < ROWS { Ok(ControlFlow::Continue(())) } else { add(&mut rows) }
        })?;
        if add(&mut rows)?.is_break() {
            return Ok(());
        }
        let _ = self.send(file.finish().map_err(|error| QueryError::Internal(error.into()))?);
        Ok(())
    }
}

/// The values of the columns of a person.
fn cells(row: Value) -> Vec<Value> {
    let mut row = match row {
        Value::Object(row) => row,
        _ => Map::new(),
    };
    COLUMNS.iter().map(|(name, _)| row.remove(*name).unwrap_or_default()).collect()
}
