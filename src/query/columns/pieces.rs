//! All persons of a project in pieces, as of one moment: as files have them, with who has changed since
//! read anew. Of a piece columns are made; to put them together is the business of others.

use std::sync::Arc;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bitmap::Bitmap;
use crate::identity::row::Row;
use crate::identity::view::View;
use crate::query::columns::file_set::Piece;
use crate::query::columns::file_set::places;
use crate::query::columns::table::Refusal;
use crate::query::columns::table::Rows;
use crate::query::parts::ranges;

/// Ranges of those who are in no file.
const RANGES: usize = 16;

/// If more than one person in this many has changed, all of a file are read from their rows.
const CHANGED_SHARE: usize = 4;

/// See the head of this file.
pub(in crate::query) struct Pieces {
    pub(in crate::query) project: ProjectId,
    pub(in crate::query) view: Arc<View>,
    /// Who is not as the files say.
    changed: Bitmap,
    /// The columns to read.
    pub(super) keys: Vec<Box<str>>,
    /// In the order of their numbers.
    pub(in crate::query) all: Vec<Piece>,
}

impl Pieces {
    /// Of files, and of all whose numbers are beyond.
    pub(super) fn new(
        (project, view): (ProjectId, View),
        (mut all, changed): (Vec<Piece>, Bitmap),
        keys: Vec<Box<str>>,
    ) -> Result<Self, IdentityError> {
        let kept = all.last().map_or(1, |piece| piece.numbers.end);
        let rest = ranges(kept..view.next_number()?, RANGES).into_iter();
        all.extend(rest.map(|numbers| Piece { numbers, chunk: None }));
        Ok(Self { project, view: Arc::new(view), changed, keys, all })
    }

    /// The persons of a piece from its file, as they are now. `None` if their rows have to be read.
    pub(in crate::query) fn rows(&self, piece: &Piece) -> Result<Option<Rows>, Refusal> {
        let Some(chunk) = &piece.chunk else { return Ok(None) };
        let changed: Vec<usize> = self.changed.within(places(&piece.numbers)).collect();
        if changed.len() > chunk.persons / CHANGED_SHARE {
            return Ok(None);
        }
        let mut rows = match chunk.read(&self.keys) {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(None),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a file of columns of persons cannot be read");
                return Ok(None);
            }
        };
        for number in changed {
            let Ok(number) = i64::try_from(number) else { continue };
            // Who is not in the file was gone before, for good.
            let Some(place) = rows.place(number) else { continue };
            let ask = |row: &Row<'_>| rows.set(place, Some(row));
            let set = self.view.ask_row(self.project, number, ask)?;
            set.unwrap_or_else(|| rows.set(place, None))?;
        }
        Ok(Some(rows))
    }
}
