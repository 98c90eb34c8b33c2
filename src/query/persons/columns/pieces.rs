//! All persons of a project in pieces, as of one moment: as the files of the persons table have them, with who has
//! changed since read anew. Of a piece columns are made; to put them together is the business of others.

use std::ops::Range;
use std::sync::Arc;

use object_store::ObjectStore;

use crate::persons::columns::table::{Refusal, Rows};
use crate::persons::person_table::{Part, Parts, PersonTable};
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person_set::PersonSet;
use weir_identity::row::{Key, Row};
use weir_identity::view::View;
use weir_storage::delta::DataFile;

/// Ranges of those who are in no file.
const RANGES: usize = 16;

/// If more than one person in this many has changed, all of a file are read from their rows.
const CHANGED_SHARE: usize = 4;

/// Some numbers, and the file that has their persons.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) numbers: Range<i64>,
    file: Option<Arc<DataFile>>,
}

/// See the head of this file.
pub(crate) struct Pieces {
    pub(crate) project: ProjectId,
    pub(crate) view: Arc<View>,
    /// Who is not as the files say.
    changed: PersonSet,
    /// The columns to read.
    pub(super) keys: Vec<Box<str>>,
    /// In the order of their numbers.
    pub(crate) all: Vec<Piece>,
    files: Option<(Arc<PersonTable>, Arc<dyn ObjectStore>)>,
}

impl Pieces {
    /// All persons of a project, as of a view.
    pub(super) fn new(
        table: Option<Arc<PersonTable>>,
        project: ProjectId,
        view: View,
        keys: Vec<Box<str>>,
    ) -> Result<Self, IdentityError> {
        let parts = PersonTable::parts(table.as_deref(), project, &view, RANGES)?;
        let Parts { store, parts, changed } = parts;
        let piece = |Part { numbers, file }: Part| Piece { numbers, file };
        let all = parts.into_iter().map(piece).collect();
        let files = table.zip(store);
        Ok(Self { project, view: Arc::new(view), changed, keys, all, files })
    }

    /// Whether any of them is in a file.
    pub(super) fn has_files(&self) -> bool {
        self.all.iter().any(|piece| piece.file.is_some())
    }

    /// The persons of a piece from its file, as they are now. `None` if their rows have to be read.
    pub(crate) fn rows(&self, piece: &Piece) -> Result<Option<Rows>, Refusal> {
        let (Some(file), Some((table, store))) = (&piece.file, &self.files) else {
            return Ok(None);
        };
        let places = (self.project, piece.numbers.start)..(self.project, piece.numbers.end);
        let changed = usize::try_from(self.changed.count(&places)).unwrap_or(usize::MAX);
        if changed > usize::try_from(file.rows).unwrap_or(usize::MAX) / CHANGED_SHARE {
            return Ok(None);
        }
        let keys = self.keys.iter().map(|key| Key::new(key)).collect();
        let Some(found) = table.read(store, file, self.project, &piece.numbers, keys) else {
            return Ok(None);
        };
        let mut rows = Rows::new(&self.keys, 0);
        rows.extend(found.persons.iter().copied(), |name| found.values(name))?;
        for (_, number) in self.changed.within(&places) {
            let ask = |row: &Row<'_>| match rows.place(row.number) {
                Some(place) => rows.set(place, Some(row)).map(|()| true),
                // New persons come behind all others.
                None if rows.last_number() < Some(row.number) => rows.push(row).map(|()| true),
                None => Ok(false),
            };
            match self.view.ask_row(self.project, number, ask)?.transpose()? {
                Some(true) => {}
                Some(false) => return Ok(None),
                // Who is not in the file was gone before, for good.
                None => {
                    if let Some(place) = rows.place(number) {
                        rows.set(place, None)?;
                    }
                }
            }
        }
        Ok(Some(rows))
    }
}
