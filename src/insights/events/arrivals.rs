//! Events in the order in which this server received them: the newest ([`newest`]), and those that a reader has not seen
//! yet ([`arrived`], [`Seen`]).
//!
//! # How nothing is missed
//!
//! `received_at` is taken before a request is decoded and logged, so requests become visible in a slightly other order.
//! A reader therefore does not remember the last event but a window: a floor, and which events that were received after
//! it are known. What is after the floor and not known is new, however late it became visible. The floor follows the
//! clock at a distance ([`MARGIN`]), which bounds the window in time, and [`KEYS_MAX`] bounds it in memory. Files whose
//! `received_at` is below the floor are left out by their bounds, so a look costs what has arrived lately, not what is
//! stored.
//!
//! A reader that comes again has the floor and the number of the known events ([`Seen::position`]): with the number of
//! those that are there now it is known how many are new, but not which, so that all of the window are told if it is
//! small. Such a reader leaves out what it has.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::SortExpr;
use datafusion::prelude::{col, lit};
use futures::future::BoxFuture;
use uuid::Uuid;

use crate::columns::time;
use crate::events::newest::since;
use crate::events::{EventRow, EventsQuestion, collect};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;

/// How long after it was received an event may become visible and still be told: the time-outs of requests and a slow
/// disk fit in.
pub const MARGIN: Duration = Duration::from_secs(60);

/// How far back a position of a reader may be; before that, only the number of events is told from here on.
const BACK_MAX: Duration = Duration::from_hours(24);

/// Most events of a look, and so of a window.
pub const KEYS_MAX: usize = 10_000;

/// Most events of a window that are told again to a reader that comes again.
const REPEATED_MAX: usize = 200;

/// One event, by the time at which it was received.
pub type Key = (i64, Uuid);

/// What was received after a moment.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// The newest, newest first; at most [`KEYS_MAX`].
    pub keys: Vec<Key>,
    /// The number of all.
    pub total: usize,
}

/// Which events a reader has seen: those received up to the floor, and some of those after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    floor: i64,
    known: Known,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// So many events after the floor.
    Number(usize),
    /// These.
    Keys(BTreeSet<Key>),
}

/// What is new to a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fresh {
    /// The newest of it, oldest first; of a reader that comes again also what may be it.
    pub keys: Vec<Key>,
    /// How many events are new.
    pub number: usize,
}

impl Fresh {
    /// How many of them are not told.
    pub fn skipped(&self) -> usize {
        self.number.saturating_sub(self.keys.len())
    }
}

/// What was received after `floor` and answers `question`.
pub async fn arrived(
    engine: &Engine,
    project: ProjectId,
    question: EventsQuestion,
    floor: i64,
) -> Result<Arrived, QueryError> {
    let (_, rows) = question.rows(engine, project).await?;
    let rows = rows.filter(col("received_at").gt(time(UnixMicros(floor))))?;
    let columns = ["received_at", "timestamp", "uuid"].map(col).to_vec();
    let newest = rows.clone().select(columns)?.sort(order())?.limit(0, Some(KEYS_MAX + 1))?;
    let (_, batches) = engine.collect(newest).await?;
    let mut keys: Vec<Key> = batches.iter().flat_map(keys).collect();
    let total = match keys.len() > KEYS_MAX {
        false => keys.len(),
        true => {
            let counted = rows.aggregate(Vec::new(), vec![count(lit(1))])?;
            let (_, batches) = engine.collect(counted).await?;
            let counts = batches.iter().filter_map(|batch| {
                batch.column(0).as_primitive_opt::<Int64Type>()?.values().first().copied()
            });
            usize::try_from(counts.sum::<i64>()).unwrap_or(usize::MAX)
        }
    };
    keys.truncate(KEYS_MAX);
    Ok(Arrived { keys, total })
}

/// The events of `keys`, in their order, without those that are gone meanwhile.
pub async fn named(
    engine: &Engine,
    project: ProjectId,
    keys: &[Key],
) -> Result<Vec<EventRow>, QueryError> {
    let times = || keys.iter().map(|(at, _)| *at);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(Vec::new()) };
    let (_, events) = EventsQuestion::default().rows(engine, project).await?;
    let within = col("received_at").between(time(UnixMicros(first)), time(UnixMicros(last)));
    let uuids = keys.iter().map(|(_, uuid)| lit(uuid.to_string())).collect();
    let rows = events.filter(within)?.filter(col("uuid").in_list(uuids, false))?;
    let places: HashMap<String, usize> =
        keys.iter().map(|(_, uuid)| uuid.to_string()).zip(0..).collect();
    let mut rows = collect(engine, rows).await?;
    rows.sort_by_key(|row| places.get(&row.uuid).copied());
    // A copy that slipped in is the same event.
    rows.dedup_by(|a, b| a.uuid == b.uuid);
    Ok(rows)
}

/// The events that were received last and answer `question`, newest first; at most `limit`.
pub fn newest(
    engine: &Engine,
    project: ProjectId,
    question: EventsQuestion,
    limit: usize,
) -> BoxFuture<'_, Result<Vec<EventRow>, QueryError>> {
    Box::pin(async move {
        let (view, rows) = question.rows(engine, project).await?;
        let Some(bounds) = view.arrival_times() else { return Ok(Vec::new()) };
        let Some(first) = since(engine, (&rows, "received_at"), bounds, limit).await? else {
            return Ok(Vec::new());
        };
        let rows = rows.filter(col("received_at").gt_eq(time(UnixMicros(first))))?;
        collect(engine, rows.sort(order())?.limit(0, Some(limit))?).await
    })
}

/// Events of one request were received at the same time.
fn order() -> Vec<SortExpr> {
    ["received_at", "timestamp", "uuid"].map(|name| col(name).sort(false, false)).to_vec()
}

fn keys(batch: &RecordBatch) -> Vec<Key> {
    let times = batch.column(0).as_primitive_opt::<TimestampMicrosecondType>();
    let ids = batch.column(2).as_string_view_opt();
    let (Some(times), Some(ids)) = (times, ids) else { return Vec::new() };
    let rows = times.values().iter().zip(ids);
    rows.filter_map(|(at, id)| Some((*at, Uuid::try_parse(id?).ok()?))).collect()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Seen {
    /// Nothing, of what is received from a little before `now` on: the start of a reader.
    pub fn nothing(now: UnixMicros) -> Self {
        Self { floor: now.0.saturating_sub(micros(MARGIN)), known: Known::Number(0) }
    }

    /// All that has arrived so far and answers `question`, and how much of it did within the last [`MARGIN`].
    pub async fn all(
        engine: &Engine,
        project: ProjectId,
        question: EventsQuestion,
        now: UnixMicros,
    ) -> Result<(Self, usize), QueryError> {
        let mut seen = Self::nothing(now);
        let arrived = arrived(engine, project, question, seen.floor).await?;
        seen.look(&arrived, now, 0);
        Ok((seen, arrived.total))
    }

    /// Reads a [`Seen::position`]; `None` if it is none.
    pub fn at(position: &str, now: UnixMicros) -> Option<Self> {
        let (floor, number) = position.split_once('.')?;
        let (floor, number) = (floor.parse::<i64>().ok()?, number.parse::<usize>().ok()?);
        let oldest = now.0.saturating_sub(micros(BACK_MAX));
        if floor < oldest {
            return Some(Self { floor: oldest, known: Known::Number(0) });
        }
        (floor <= now.0).then_some(Self { floor, known: Known::Number(number) })
    }

    /// The time after which events may be new.
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// What a reader has to say when it comes again, so that nothing is missed.
    pub fn position(&self) -> String {
        let number = match &self.known {
            Known::Number(number) => *number,
            Known::Keys(keys) => keys.len(),
        };
        format!("{}.{number}", self.floor)
    }

    /// Notes what has arrived after the floor, and returns what of it is new, at most `shown_max` events, and more only
    /// for a reader that came again.
    pub fn look(&mut self, arrived: &Arrived, now: UnixMicros, shown_max: usize) -> Fresh {
        let Arrived { keys, total } = arrived;
        let (number, mut told): (usize, Vec<Key>) = match &self.known {
            Known::Number(known) => {
                let number = total.saturating_sub(*known);
                let taken = match (number, *known) {
                    (0, _) => 0,
                    (number, 0) => number.min(shown_max),
                    _ if *total <= REPEATED_MAX => *total,
                    (number, _) => number.min(shown_max),
                };
                (number, keys.iter().copied().take(taken).collect())
            }
            Known::Keys(known) => {
                let new = keys.iter().copied().filter(|key| !known.contains(key));
                let told: Vec<Key> = new.collect();
                let unseen = total.saturating_sub(keys.len());
                // Those beyond the window may be known or not: what is known is at most all of it.
                let beyond =
                    unseen.saturating_sub(known.len().saturating_sub(keys.len() - told.len()));
                (told.len().saturating_add(beyond), told.into_iter().take(shown_max).collect())
            }
        };
        told.reverse();
        self.forget(arrived, now);
        Fresh { keys: told, number }
    }

    /// Moves the floor, and remembers what of `arrived` is above it.
    fn forget(&mut self, arrived: &Arrived, now: UnixMicros) {
        let behind = now.0.saturating_sub(micros(MARGIN));
        // A clock that was set back takes the floor with it.
        let mut floor = if now.0 < self.floor { behind } else { self.floor.max(behind) };
        if arrived.total > arrived.keys.len() {
            // Of the events at the time of the last key some may be missing.
            floor = floor.max(arrived.keys.last().map_or(floor, |(at, _)| *at));
        }
        let known = arrived.keys.iter().copied().filter(|(at, _)| *at > floor).collect();
        (self.floor, self.known) = (floor, Known::Keys(known));
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Arrived, Fresh, KEYS_MAX, Key, Seen};
    use weir_base::clock::UnixMicros;

    const SECOND: i64 = 1_000_000;

    /// Far enough from 0 for every floor.
    const NOW: i64 = 10_000_000 * SECOND;

    fn key(at: i64, number: u64) -> Key {
        (NOW + at, Uuid::from_u64_pair(0, number))
    }

    /// What a store with these events tells, as the queries do.
    fn told(events: &[Key], seen: &Seen) -> Arrived {
        let mut keys: Vec<Key> =
            events.iter().copied().filter(|(at, _)| *at > seen.floor()).collect();
        keys.sort_by(|a, b| b.cmp(a));
        let total = keys.len();
        keys.truncate(KEYS_MAX);
        Arrived { keys, total }
    }

    fn look(seen: &mut Seen, events: &[Key], now: i64) -> Fresh {
        let arrived = told(events, seen);
        seen.look(&arrived, UnixMicros(NOW + now), 50)
    }

    #[test]
    fn each_event_is_told_once_in_order_of_arrival_however_late_it_becomes_visible() {
        let mut seen = Seen::nothing(UnixMicros(NOW));
        let mut events = vec![key(1, 1), key(2, 2)];
        assert_eq!(look(&mut seen, &events, 3).keys, [key(1, 1), key(2, 2)]);
        assert_eq!(look(&mut seen, &events, 3), Fresh::default());
        // Received before those that were told, and at the same time as one.
        events.extend([key(2, 9), key(-5, 3)]);
        assert_eq!(look(&mut seen, &events, 4).keys, [key(-5, 3), key(2, 9)]);
        // The window moves, and what leaves it is not told again.
        for at in 1..300 {
            let new = key(at * SECOND, 1000 + u64::try_from(at).unwrap());
            events.push(new);
            assert_eq!(look(&mut seen, &events, at * SECOND).keys, [new], "{at}");
        }
        // The clock is set back by a minute and more.
        let new = key(100 * SECOND, 7);
        events.push(new);
        let fresh = look(&mut seen, &events, 100 * SECOND);
        assert!(fresh.keys.is_empty(), "it is behind the floor: {fresh:?}");
        let fresh = look(&mut seen, &events, 101 * SECOND);
        assert_eq!(fresh.number, 200, "what is behind the old floor again");
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let batch = |from: u64, number: u64, at: i64| -> Vec<Key> {
            (from..from + number).map(|number| key(at, number)).collect()
        };
        let mut seen = Seen::nothing(UnixMicros(NOW));
        let mut events = batch(0, 80, 1);
        let fresh = look(&mut seen, &events, 2);
        assert_eq!((fresh.keys.len(), fresh.skipped()), (50, 30));
        assert_eq!(fresh.keys.last(), Some(&key(1, 79)));
        events.extend(batch(100, 60, 2));
        let fresh = look(&mut seen, &events, 3);
        assert_eq!((fresh.keys.len(), fresh.skipped()), (50, 10));
        // More than a window has, all received at once, and then one more.
        let many = u64::try_from(KEYS_MAX).unwrap() * 3;
        events.extend(batch(1000, many, 4));
        let fresh = look(&mut seen, &events, 5);
        assert_eq!((fresh.keys.len(), fresh.skipped()), (50, usize::try_from(many).unwrap() - 50));
        events.push(key(5, 7));
        assert_eq!(look(&mut seen, &events, 6), Fresh { keys: vec![key(5, 7)], number: 1 });
    }

    #[test]
    fn a_reader_that_comes_again_misses_nothing() {
        let mut seen = Seen::nothing(UnixMicros(NOW));
        let mut events: Vec<Key> = (0..20).map(|number| key(1, number)).collect();
        assert_eq!(look(&mut seen, &events, 2).keys.len(), 20);
        let again = |now: i64| Seen::at(&seen.position(), UnixMicros(NOW + now)).unwrap();
        assert_eq!(look(&mut again(3), &events, 3), Fresh::default(), "nothing is new");
        // One was received before the others: all that may be it are told.
        events.push(key(0, 99));
        let fresh = look(&mut again(4), &events, 4);
        assert!(fresh.keys.contains(&key(0, 99)) && fresh.keys.len() == 21, "{fresh:?}");
        assert_eq!(fresh.skipped(), 0);
        // Many came meanwhile: the newest are told, and the others counted.
        events.extend((0..1000).map(|number| key(10 * SECOND, 1000 + number)));
        let mut reader = again(20 * SECOND);
        let fresh = look(&mut reader, &events, 20 * SECOND);
        assert_eq!((fresh.keys.len(), fresh.skipped()), (50, 951));
        assert_eq!(look(&mut reader, &events, 21 * SECOND), Fresh::default());
    }

    #[test]
    fn positions_are_bounded() {
        let now = UnixMicros(NOW);
        for wrong in ["", "1", "x.1", "1.x", "1.-1", "99999999999999999999.1"] {
            assert_eq!(Seen::at(wrong, now), None, "{wrong}");
        }
        assert_eq!(Seen::at(&format!("{}.0", NOW + 1), now), None, "it is not over yet");
        let day = 24 * 3600 * SECOND;
        assert_eq!(Seen::at("5.7", now).unwrap().position(), format!("{}.0", NOW - day));
        let own = format!("{}.7", NOW - day);
        assert_eq!(Seen::at(&own, now).unwrap().position(), own);
    }
}
