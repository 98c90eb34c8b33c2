//! Events in the order in which this server received them: the newest ([`newest`]), and those that a reader has not
//! yet seen ([`arrived`], [`Seen`]).
//!
//! # How no event is missed
//!
//! `received_at` is set before a request is decoded and logged, so events become visible in a slightly different
//! order. A reader therefore keeps not the last event but a window: a floor, and the keys of the events after it that
//! it has seen. An event after the floor whose key is not in the window is new, however late it became visible. The
//! floor follows the clock at a distance of [`MARGIN`], which bounds the window in time; [`KEYS_MAX`] bounds it in
//! memory. Files whose `received_at` is below the floor are pruned by their statistics, so the cost of a poll depends
//! on what has arrived recently, not on what is stored.
//!
//! A reader that reconnects sends the floor and the number of events that it had seen after it ([`Seen::position`]).
//! The number of events that are there now then shows how many are new, but not which ones, so all events of the
//! window are sent again if it is small, and the reader discards those that it has.

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

/// Longest delay from receipt to visibility for which the live feed still delivers an event. It covers the time-outs
/// of requests and a slow disk.
pub const MARGIN: Duration = Duration::from_secs(60);

/// Greatest age of a position from which a reader can resume. With an older one it resumes at this age, as if it had
/// seen no event since.
const BACK_MAX: Duration = Duration::from_hours(24);

/// Most events of a poll, and so of a window.
pub const KEYS_MAX: usize = 10_000;

/// Most events of a window that are sent again to a reader that reconnects.
const REPEATED_MAX: usize = 200;

/// Identifies an event: when it was received, and its id.
pub type Key = (i64, Uuid);

/// The events received after a moment.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// The keys of the newest ones, newest first; at most [`KEYS_MAX`].
    pub keys: Vec<Key>,
    /// The number of all of them.
    pub total: usize,
}

/// What a reader has seen: all events received up to the floor, and some of those after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    floor: i64,
    known: Known,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// This many events after the floor; their keys are not known.
    Number(usize),
    /// The events with these keys.
    Keys(BTreeSet<Key>),
}

/// What is new to a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fresh {
    /// The keys of the newest ones, oldest first; for a reader that reconnects also those of events that it may have
    /// seen.
    pub keys: Vec<Key>,
    /// How many events are new.
    pub number: usize,
}

impl Fresh {
    /// How many of the new events are omitted from `keys`.
    pub fn skipped(&self) -> usize {
        self.number.saturating_sub(self.keys.len())
    }
}

/// The events received after `floor` that match `question`.
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

/// The events of `keys`, in their order, without those that no longer exist.
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
    // A duplicate that was stored is the same event.
    rows.dedup_by(|a, b| a.uuid == b.uuid);
    Ok(rows)
}

/// The events received last that match `question`, newest first; at most `limit`.
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

/// By time of receipt, newest first; ties by timestamp and id, since the events of one request have the same
/// `received_at`.
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
    /// The state of a new reader, which has seen nothing that is received from [`MARGIN`] before `now` on.
    pub fn nothing(now: UnixMicros) -> Self {
        Self { floor: now.0.saturating_sub(micros(MARGIN)), known: Known::Number(0) }
    }

    /// The state of a reader that has seen all events that match `question` so far, and how many of these arrived
    /// within the last [`MARGIN`].
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

    /// Parses a [`Seen::position`]; `None` if it is malformed or in the future.
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

    /// The position that a reader sends when it reconnects, so that it misses no event.
    pub fn position(&self) -> String {
        let number = match &self.known {
            Known::Number(number) => *number,
            Known::Keys(keys) => keys.len(),
        };
        format!("{}.{number}", self.floor)
    }

    /// Records what has arrived after the floor, and returns what of it is new: at most `shown_max` events, or more
    /// only for a reader that reconnected.
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
                // Events beyond `keys` may be seen or new: at most as many of them are seen as there are seen keys
                // that are not in `keys`.
                let beyond =
                    unseen.saturating_sub(known.len().saturating_sub(keys.len() - told.len()));
                (told.len().saturating_add(beyond), told.into_iter().take(shown_max).collect())
            }
        };
        told.reverse();
        self.forget(arrived, now);
        Fresh { keys: told, number }
    }

    /// Advances the floor, and records what of `arrived` is above it.
    fn forget(&mut self, arrived: &Arrived, now: UnixMicros) {
        let behind = now.0.saturating_sub(micros(MARGIN));
        // If the clock was set back, the floor moves back, too.
        let mut floor = if now.0 < self.floor { behind } else { self.floor.max(behind) };
        if arrived.total > arrived.keys.len() {
            // Of the events received at the same time as the last key, some may be missing from the keys.
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

    /// Far enough from 0 that no floor is negative.
    const NOW: i64 = 10_000_000 * SECOND;

    fn key(at: i64, number: u64) -> Key {
        (NOW + at, Uuid::from_u64_pair(0, number))
    }

    /// What the queries return for a store with these events.
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
        // Received before those that were delivered, and at the same time as one of them.
        events.extend([key(2, 9), key(-5, 3)]);
        assert_eq!(look(&mut seen, &events, 4).keys, [key(-5, 3), key(2, 9)]);
        // The window moves, and events that leave it are not delivered again.
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
        // More than fit in a window, all received at once, and then one more.
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
        // One was received before the others: all events that it may be are delivered.
        events.push(key(0, 99));
        let fresh = look(&mut again(4), &events, 4);
        assert!(fresh.keys.contains(&key(0, 99)) && fresh.keys.len() == 21, "{fresh:?}");
        assert_eq!(fresh.skipped(), 0);
        // Many came meanwhile: the newest are delivered, and the others counted.
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
