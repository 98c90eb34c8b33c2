//! Questions about everybody whose columns do not fit into memory: asked of the files that have them, one
//! after the other. What is kept of a file is who answers, a bit for each person.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::admission::Permit;
use crate::kernel::engine::{Engine, StopOnDrop};
use crate::kernel::error::QueryError;
use crate::kernel::parts::{given_up, in_pieces};
use crate::persons::columns::{Columns, Piece, Pieces, Refusal, Selection, along};
use crate::persons::people::full_scan::{COLUMNS_MAX, First, asked};
use crate::persons::people::search::Search;
use crate::persons::people::{FUTURE, Found, Part, PersonsQuestion};
use weir_event::id::ProjectId;
use weir_event::predicate::moment::Now;
use weir_identity::IdentityError;
use weir_identity::bitmap::Bitmap;
use weir_identity::store::Identities;

/// Persons that are read to be put in order. Of more than these among 10 million, the first 100 stand among
/// the first 100,000 of the list, if they are spread over it.
const LOOKED_UP_MAX: usize = 10_000;

impl Engine {
    /// The persons who answer, from files of columns, one after the other; `None` if they cannot tell.
    pub(super) async fn find_in_files(
        &self,
        project: ProjectId,
        question: &Arc<PersonsQuestion>,
        now: Now,
        part: Part,
        permit: &Arc<Permit>,
    ) -> Result<Option<Found>, QueryError> {
        let (columns, identities) = (Arc::clone(&self.shared.columns), self.identities().clone());
        let (asking, own) = (Arc::clone(permit), Arc::clone(question));
        let pieces = self.on_a_thread(move |_| {
            let _permit = asking;
            pieces_of(&columns, &identities, project, &own)
        });
        let Some(pieces) = pieces.await?.map(Arc::new) else { return Ok(None) };
        let stop = StopOnDrop::default();
        let (flag, working, asked) =
            (Arc::clone(&stop.0), Arc::clone(permit), Arc::clone(question));
        let own = Arc::clone(&pieces);
        let work = move |piece: Piece| {
            let _permit = &working;
            find_in_piece(&own, &piece, &asked, now, &flag)
        };
        let parts = in_pieces(&self.shared.runtime, pieces.all.clone(), work).await;
        let parts = parts.map_err(given_up)??;
        let listing = Arc::clone(permit);
        let found = self.on_a_thread(move |stop| {
            let _permit = listing;
            listed(pieces, &parts, now, part, LOOKED_UP_MAX, stop)
        });
        found.await.map(Some)
    }
}

/// All persons of a project in pieces whose columns tell who answers; `None` if there are none.
pub(super) fn pieces_of(
    columns: &Columns,
    identities: &Identities,
    project: ProjectId,
    question: &PersonsQuestion,
) -> Result<Option<Pieces>, IdentityError> {
    let keys: Vec<Box<str>> = question.keys().into_iter().map(Into::into).collect();
    // What a search finds is known to columns whatever it is.
    match (1..=COLUMNS_MAX).contains(&keys.len()) && asked(question, None).is_known() {
        true => columns.pieces(identities, project, keys),
        false => Ok(None),
    }
}

/// The numbers of the persons of a piece who answer, less the first number of the piece.
pub(super) fn find_in_piece(
    pieces: &Pieces,
    piece: &Piece,
    question: &PersonsQuestion,
    now: Now,
    stop: &AtomicBool,
) -> Result<(i64, Bitmap), IdentityError> {
    let (view, project, start) = (&pieces.view, pieces.project, piece.numbers.start);
    let search = Search::new(view, project, question, now, stop)?;
    let (newest, mut found) = (search.newest(), Bitmap::default());
    let mut find = |number: i64| {
        found.insert(usize::try_from(number.saturating_sub(start)).unwrap_or(0));
    };
    let rows = match pieces.rows(piece) {
        Ok(rows) => rows,
        Err(Refusal::Failed(error)) => return Err(error),
        Err(Refusal::TooLarge | Refusal::Torn) => None,
    };
    if let Some(rows) = &rows {
        let selection =
            Selection { rows, view, project, asked_at: 0, now, newest, ordered_max: 0, stop };
        let decide = |number| search.is_number_kept(number);
        if let Some(chosen) = selection.choose(&asked(question, search.sought.as_ref()), decide)? {
            chosen.iter().for_each(|place| find(rows.number(place)));
            return Ok((start, found));
        }
    }
    search.each(piece.numbers.clone(), |row| find(row.number))?;
    Ok((start, found))
}

/// The part of the list of those who were found in pieces. Up to `looked_up_max` of them are read to be put
/// in order; if they are more, the list is gone along, which finds the first of them soon.
pub(super) fn listed(
    pieces: Arc<Pieces>,
    found: &[(i64, Bitmap)],
    now: Now,
    part: Part,
    looked_up_max: usize,
    stop: &AtomicBool,
) -> Result<Found, IdentityError> {
    let (view, project) = (Arc::clone(&pieces.view), pieces.project);
    let mut all = Bitmap::default();
    for (start, own) in found {
        all.insert_all(own, usize::try_from(*start).unwrap_or(0));
    }
    let (count, end) = (all.count(), part.offset.saturating_add(part.limit));
    let mut numbers = Vec::new();
    if count <= looked_up_max {
        let mut first = First::new();
        for number in all.iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
            let Ok(number) = i64::try_from(number) else { continue };
            let place = view.ask_row(project, number, |row| (row.created_at, row.uuid))?;
            first.extend(place.map(|place| (Reverse(place), number)));
        }
        numbers.extend(first.into_iter().map(|(_, number)| number).take(end));
    } else {
        let is_chosen = |number| usize::try_from(number).is_ok_and(|number| all.contains(number));
        let newest = now.at.saturating_add(FUTURE);
        numbers = along(&view, project, newest, end, is_chosen, stop)?;
    }
    let numbers = numbers.into_iter().skip(part.offset).collect();
    Ok(Found { count, numbers, project, view })
}
