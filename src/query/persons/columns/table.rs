//! The columns of one project and the persons they are of, as of one moment, and how they get to a
//! later one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::persons::columns::column::{Column, TooLarge, push};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::bitmap::Bitmap;
use weir_identity::change_feed::ChangeFeed;
use weir_identity::row::{Key, Row};
use weir_identity::view::{Flow, View};

/// Columns of one project.
const COLUMNS_MAX: usize = 64;

/// Persons by place, rising by their numbers, with some columns. Places are never taken away: who is
/// gone is only marked so.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    numbers: Vec<u32>,
    created: Vec<i64>,
    /// Who is still there.
    present: Bitmap,
    identified: Bitmap,
    pub(super) columns: BTreeMap<Box<str>, Held>,
}

/// A column and when it was asked last, in questions.
#[derive(Debug)]
pub(super) struct Held {
    key: Key,
    pub(super) column: Column,
    pub(super) asked: AtomicU64,
}

impl Rows {
    pub(super) fn new(keys: &[Box<str>], asked: u64) -> Self {
        let held = |key: &str| {
            let (column, asked) = (Column::default(), AtomicU64::new(asked));
            (key.into(), Held { key: Key::new(key), column, asked })
        };
        Self { columns: keys.iter().map(|key| held(key)).collect(), ..Self::default() }
    }

    /// Adds a person with a larger number than all before.
    pub(super) fn push(&mut self, row: &Row<'_>) -> Result<(), TooLarge> {
        let place = self.numbers.len();
        push(&mut self.numbers, u32::try_from(row.number).map_err(|_| TooLarge)?);
        push(&mut self.created, row.created_at.0);
        self.present.insert(place);
        self.identified.set(place, row.is_identified);
        let mut columns = self.columns.values_mut();
        columns.try_for_each(|held| held.column.push(row.property(&held.key)))
    }

    /// Adds persons with larger numbers: number, time, whether identified. Of a column `values` gives by
    /// its name the different values, and for each person the place of the own one there.
    pub(super) fn extend<'v>(
        &mut self,
        persons: impl Iterator<Item = (i64, i64, bool)>,
        values: impl Fn(&str) -> Option<(Vec<&'v str>, Vec<Option<usize>>)>,
    ) -> Result<(), TooLarge> {
        let before = self.numbers.len();
        self.reserve(persons.size_hint().0);
        for (number, created, is_identified) in persons {
            let place = self.numbers.len();
            push(&mut self.numbers, u32::try_from(number).map_err(|_| TooLarge)?);
            push(&mut self.created, created);
            self.present.insert(place);
            self.identified.set(place, is_identified);
        }
        let added = self.numbers.len() - before;
        self.columns.values_mut().try_for_each(|held| {
            let (texts, mut places) = values(held.key.json()).unwrap_or_default();
            places.resize(added, None);
            held.column.extend(&texts, places.into_iter())
        })
    }

    /// Says how a person is now; `None` if it is gone.
    pub(super) fn set(&mut self, place: usize, row: Option<&Row<'_>>) -> Result<(), TooLarge> {
        self.present.set(place, row.is_some());
        if let Some(row) = row {
            self.identified.set(place, row.is_identified);
            if let Some(created) = self.created.get_mut(place) {
                *created = row.created_at.0;
            }
        }
        let mut columns = self.columns.values_mut();
        columns.try_for_each(|held| {
            held.column.set(place, row.and_then(|row| row.property(&held.key)))
        })
    }

    /// Makes room for so many persons more, and no more than that.
    pub(super) fn reserve(&mut self, persons: usize) {
        self.numbers.reserve_exact(persons);
        self.created.reserve_exact(persons);
        self.columns.values_mut().for_each(|held| held.column.reserve(persons));
    }

    /// Adds persons with larger numbers and the same columns.
    pub(super) fn append(&mut self, other: Self) -> Result<(), TooLarge> {
        let before = self.numbers.len();
        self.numbers.extend_from_slice(&other.numbers);
        self.created.extend_from_slice(&other.created);
        self.present.insert_all(&other.present, before);
        self.identified.insert_all(&other.identified, before);
        let places = other.numbers.len();
        for (key, held) in other.columns {
            if let Some(own) = self.columns.get_mut(&key) {
                own.column.append(&held.column, (0..places).map(Some))?;
            }
        }
        Ok(())
    }

    /// Takes over the columns of `other`, whose persons may be more or fewer. Who is missing there gets
    /// no value.
    fn adopt(&mut self, other: Self) -> Result<(), TooLarge> {
        if self.numbers == other.numbers {
            self.columns.extend(other.columns);
            return Ok(());
        }
        for (key, held) in other.columns {
            let mut column = Column::default();
            let mut at = 0;
            let place = |number: &u32| {
                let rest = other.numbers.get(at..)?;
                at += rest.iter().take_while(|theirs| *theirs < number).count();
                (other.numbers.get(at) == Some(number)).then_some(at)
            };
            column.append(&held.column, self.numbers.iter().map(place))?;
            self.columns.insert(key, Held { column, ..held });
        }
        Ok(())
    }

    /// Leaves so many columns.
    fn drop_oldest(&mut self, columns_max: usize) {
        while self.columns.len() > columns_max {
            let asked = |held: &Held| held.asked.load(Ordering::Relaxed);
            let oldest = self.columns.iter().min_by_key(|(_, held)| asked(held));
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            self.columns.remove(&oldest);
        }
    }

    /// Persons, those included who are gone.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The largest number.
    pub(super) fn last_number(&self) -> Option<i64> {
        self.numbers.last().copied().map(i64::from)
    }

    pub(crate) fn number(&self, place: usize) -> i64 {
        self.numbers.get(place).copied().map_or(0, i64::from)
    }

    pub(super) fn place(&self, number: i64) -> Option<usize> {
        self.numbers.binary_search(&u32::try_from(number).ok()?).ok()
    }

    pub(super) fn created_at(&self, place: usize) -> UnixMicros {
        UnixMicros(self.created.get(place).copied().unwrap_or(i64::MIN))
    }

    /// The first and the last time at which anybody was created, as microseconds.
    pub(super) fn created_bounds(&self) -> Option<(i64, i64)> {
        let bounds =
            |(first, last): (i64, i64), created: &i64| (first.min(*created), last.max(*created));
        let first = *self.created.first()?;
        Some(self.created.iter().fold((first, first), bounds))
    }

    pub(super) fn present(&self) -> &Bitmap {
        &self.present
    }

    pub(super) fn identified(&self) -> &Bitmap {
        &self.identified
    }

    /// A column that is here, which was asked for now.
    pub(super) fn column(&self, key: &str, asked: u64) -> Option<&Column> {
        let held = self.columns.get(key)?;
        held.asked.fetch_max(asked, Ordering::Relaxed);
        Some(&held.column)
    }

    /// The name of the column that takes the most memory.
    pub(super) fn largest(&self) -> Box<str> {
        let largest = self.columns.iter().max_by_key(|(_, held)| held.column.memory());
        largest.map(|(key, _)| key.clone()).unwrap_or_default()
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let places = self.numbers.capacity().saturating_mul(4);
        let created = self.created.capacity().saturating_mul(8);
        let bits = self.present.memory().saturating_add(self.identified.memory());
        // A name is kept twice.
        let own = |key: &str| size_of::<Held>().saturating_add(key.len().saturating_mul(2));
        let columns =
            self.columns.iter().map(|(key, held)| own(key).saturating_add(held.column.memory()));
        columns.fold(places.saturating_add(created).saturating_add(bits), usize::saturating_add)
    }
}

/// Why persons cannot be kept in columns.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// They would be too large.
    TooLarge,
    /// To bring them up to date failed before.
    Torn,
    /// The store failed.
    Failed(IdentityError),
}

impl From<TooLarge> for Refusal {
    fn from(TooLarge: TooLarge) -> Self {
        Self::TooLarge
    }
}

impl From<IdentityError> for Refusal {
    fn from(error: IdentityError) -> Self {
        Self::Failed(error)
    }
}

/// Rows that can be brought up to date.
#[derive(Debug)]
pub(super) struct Table {
    project: ProjectId,
    pub(super) rows: Rows,
    watch: ChangeFeed,
    /// The persons with smaller numbers are in the rows.
    next: i64,
    /// Those of them who are known to have changed since.
    pending: Bitmap,
    /// The sequence of the store when they were brought up to date.
    as_of: Option<u64>,
    /// Rows are being changed, or that failed in the middle: what had changed is not known any more.
    is_torn: bool,
}

impl Table {
    /// Rows that were read from the view that `watch` came with, up to the number `next`.
    pub(super) fn new(project: ProjectId, rows: Rows, watch: ChangeFeed, next: i64) -> Self {
        Self { project, rows, watch, next, pending: Bitmap::default(), as_of: None, is_torn: false }
    }

    /// A view of now, if the rows are as of that.
    pub(super) fn current(&self) -> Result<Option<View>, IdentityError> {
        let view = self.watch.view();
        let applied = view.applied_sequence()?;
        Ok((self.as_of == Some(applied) && !self.is_torn).then_some(view))
    }

    /// Brings the rows up to a view of now, and gives that; `None` once it is over because nobody waits for
    /// it, and what is left is for the next one. After an error they are good for nothing, which whoever
    /// has waited for them is told too.
    pub(super) fn refresh(
        &mut self,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<Option<View>, Refusal> {
        if std::mem::replace(&mut self.is_torn, true) {
            return Err(Refusal::Torn);
        }
        let (view, changed) = self.watch.changes()?;
        self.as_of = None;
        let places = (self.project, i64::MIN)..(self.project, i64::MAX);
        for (_, number) in changed.within(&places) {
            self.pending.insert(usize::try_from(number).unwrap_or(0));
        }
        let is_whole = self.update(&view, &mut is_over)? && self.extend(&view, &mut is_over)?;
        if is_whole {
            self.as_of = Some(view.applied_sequence()?);
        }
        self.is_torn = false;
        Ok(is_whole.then_some(view))
    }

    /// Reads who has changed. Says whether that is all.
    fn update(&mut self, view: &View, is_over: &mut impl FnMut() -> bool) -> Result<bool, Refusal> {
        let (mut pending, mut left) = (std::mem::take(&mut self.pending), None);
        for number in pending.iter() {
            if is_over() {
                left = Some(number);
                break;
            }
            let Ok(number) = i64::try_from(number) else { continue };
            // New persons come below.
            let Some(place) = self.rows.place(number) else { continue };
            let set = view.ask_row(self.project, number, |row| self.rows.set(place, Some(row)))?;
            set.unwrap_or_else(|| self.rows.set(place, None))?;
        }
        let Some(first) = left else { return Ok(true) };
        let done: Vec<usize> = pending.within(0..first).collect();
        done.into_iter().for_each(|number| pending.remove(number));
        self.pending = pending;
        Ok(false)
    }

    /// Reads who is new. Says whether that is all.
    fn extend(&mut self, view: &View, is_over: &mut impl FnMut() -> bool) -> Result<bool, Refusal> {
        let next = view.next_number()?;
        let (mut reached, mut too_large) = (next, Ok(()));
        view.scan_rows(self.project, self.next..next, |row| {
            if is_over() {
                reached = row.number;
                return Ok(Flow::Break(()));
            }
            too_large = self.rows.push(row);
            Ok(if too_large.is_ok() { Flow::Continue(()) } else { Flow::Break(()) })
        })?;
        too_large?;
        self.next = reached;
        Ok(reached == next)
    }

    /// Whether it is good for nothing.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Takes over the columns of a table that was read later or at the same time as this one. Beyond as
    /// many as there may be, those that were asked for longest ago go. None are taken over once it is over.
    pub(super) fn adopt(
        &mut self,
        mut other: Self,
        is_over: impl FnMut() -> bool,
    ) -> Result<(), Refusal> {
        // What changed before this is in the other's columns; what changed since this table was brought
        // up to date last is asked for again with the next question.
        if other.refresh(is_over)?.is_none() {
            return Ok(());
        }
        self.rows.adopt(other.rows)?;
        self.rows.drop_oldest(COLUMNS_MAX);
        Ok(())
    }
}
