//! Questions about everybody whose columns do not fit into memory: asked of the files that have them, one
//! after the other. What is kept of a file is who answers, a bit for each person.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedSemaphorePermit;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bits::Bits;
use crate::identity::store::Identities;
use crate::identity::view::Flow;
use crate::query::Engine;
use crate::query::QueryError;
use crate::query::columns::Columns;
use crate::query::columns::Piece;
use crate::query::columns::Pieces;
use crate::query::columns::Refusal;
use crate::query::columns::Selection;
use crate::query::parts::in_pieces;
use crate::query::people::FUTURE;
use crate::query::people::Found;
use crate::query::people::Part;
use crate::query::people::PersonsQuestion;
use crate::query::people::StopOnDrop;
use crate::query::people::everybody::COLUMNS_MAX;
use crate::query::people::everybody::First;
use crate::query::people::everybody::asked;
use crate::query::people::search::Search;

/// Persons that are read to be put in order. The list of 10 million persons is gone along for 100 out of
/// more than these in about the same time.
const LOOKED_UP_MAX: usize = 10_000;

impl Engine {
    /// The persons who answer, from files of columns, one after the other; `None` if they cannot tell.
    pub(super) async fn find_in_files(
        &self,
        project: ProjectId,
        question: &Arc<PersonsQuestion>,
        (now, part): (UnixMicros, Part),
        permit: &Arc<OwnedSemaphorePermit>,
    ) -> Result<Option<Found>, QueryError> {
        let (columns, identities) = (Arc::clone(&self.shared.columns), self.identities().clone());
        let (asking, own) = (Arc::clone(permit), Arc::clone(question));
        let pieces = self.on_a_thread(move |stop| {
            let _permit = asking;
            pieces_of(&columns, &identities, (project, &own), now, stop)
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
        let parts = parts.map_err(|_| QueryError::Unavailable("the question was given up"))??;
        let listing = Arc::clone(permit);
        let found = self.on_a_thread(move |stop| {
            let _permit = listing;
            listed(pieces, &parts, now, (part, LOOKED_UP_MAX), stop)
        });
        found.await.map(Some)
    }
}

/// All persons of a project in pieces whose columns tell who answers; `None` if there are none.
pub(super) fn pieces_of(
    columns: &Columns,
    identities: &Identities,
    (project, question): (ProjectId, &PersonsQuestion),
    now: UnixMicros,
    stop: &AtomicBool,
) -> Result<Option<Pieces>, IdentityError> {
    let keys: Vec<Box<str>> = question.keys().into_iter().map(Into::into).collect();
    let (view, can_tell) = (identities.view(), (1..=COLUMNS_MAX).contains(&keys.len()));
    let search = Search::new((&view, project), question, now, stop)?;
    match can_tell && asked(question, &search).is_known() {
        true => columns.pieces(identities, project, keys),
        false => Ok(None),
    }
}

/// The numbers of the persons of a piece who answer, less the first number of the piece.
pub(super) fn find_in_piece(
    pieces: &Pieces,
    piece: &Piece,
    question: &PersonsQuestion,
    now: UnixMicros,
    stop: &AtomicBool,
) -> Result<(i64, Bits), IdentityError> {
    let (view, project, start) = (&pieces.view, pieces.project, piece.numbers.start);
    let search = Search::new((view, project), question, now, stop)?;
    let (newest, mut found) = (search.newest(), Bits::default());
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
        if let Some(chosen) = selection.choose(&asked(question, &search), decide)? {
            chosen.iter().for_each(|place| find(rows.number(place)));
            return Ok((start, found));
        }
    }
    view.scan_rows(project, piece.numbers.clone(), |row| {
        if row.created_at <= newest && search.is_row_kept(row)? {
            find(row.number);
        }
        Ok(search.flow(true))
    })?;
    Ok((start, found))
}

/// The part of the list of those who were found in pieces. Up to `looked_up_max` of them are read to be put
/// in order; if they are more, the list is gone along, which finds the first of them soon.
pub(super) fn listed(
    pieces: Arc<Pieces>,
    found: &[(i64, Bits)],
    now: UnixMicros,
    (part, looked_up_max): (Part, usize),
    stop: &AtomicBool,
) -> Result<Found, IdentityError> {
    let (view, project) = (Arc::clone(&pieces.view), pieces.project);
    let mut all = Bits::default();
    for (start, own) in found {
        all.insert_all(own, usize::try_from(*start).unwrap_or(0));
    }
    let (count, end) = (all.count(), part.offset.saturating_add(part.limit));
    let is_over = || stop.load(Ordering::Relaxed);
    let mut numbers = Vec::new();
    if count <= looked_up_max {
        let mut first = First::new();
        for number in all.iter().take_while(|_| !is_over()) {
            let Ok(number) = i64::try_from(number) else { continue };
            let place = view.ask_row(project, number, |row| (row.created_at, row.uuid))?;
            first.extend(place.map(|place| (Reverse(place), number)));
        }
        numbers.extend(first.into_iter().map(|(_, number)| number).take(end));
    } else if end > 0 {
        view.scan_listed(project, now.saturating_add(FUTURE), |number| {
            if usize::try_from(number).is_ok_and(|number| all.contains(number)) {
                numbers.push(number);
            }
            if numbers.len() < end && !is_over() { Flow::Continue(()) } else { Flow::Break(()) }
        })?;
    }
    let numbers = numbers.into_iter().skip(part.offset).collect();
    Ok(Found { count, numbers, project, view })
}
