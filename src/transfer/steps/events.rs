//! Events, by windows of time: within one, each query of the source begins with the last event of the one before, so that
//! events of one time are neither lost nor sent twice. Events that the target has are not sent again.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::batches::{Batch, Only};
use crate::fault::{Fault, What};
use crate::report::Outcome;
use crate::server::Repeat;
use crate::state::Kind;
use crate::transfer::{Events, Project, Stop, Transfer};
use weir_base::clock::UnixMicros;
use weir_event::{json as reading, time};

const DAY: i64 = 24 * 3_600 * 1_000_000;

/// Shortest and longest time of one query, in microseconds.
const WINDOW_MIN: i64 = 60 * 1_000_000;
const WINDOW_MAX: i64 = 366 * DAY;

/// Before all events: 1900, the first year that both servers know in queries.
const FIRST: UnixMicros = UnixMicros(-2_208_988_800_000_000);

/// Events of one query, at first. Halved where the answer is too large.
const PAGE: usize = 4_000;

/// Fewest events of one query: the last one of the query before, and one more.
const PAGE_MIN: usize = 2;

/// Queries without a new event, one after the other.
const STUCK_MAX: u32 = 20;

/// Most events of one query, where many have the same time and id.
const PAGE_MAX: usize = 16_000;

/// An event of the source.
#[derive(Debug)]
struct Row {
    at: UnixMicros,
    uuid: Uuid,
    event: String,
    distinct_id: String,
    /// The JSON of its properties, as the source stores them.
    properties: String,
    elements_chain: String,
}

/// An event as the keys of its row.
type Key = (UnixMicros, Uuid, String, String);

/// Where the next query begins, and how much it asks for.
#[derive(Debug)]
struct Walk {
    /// The place of the last event; of a window that has ended, its end.
    from: (UnixMicros, Option<Uuid>),
    /// The events of the last query, which come again if the next one begins with them.
    last: BTreeSet<Key>,
    /// Time that one query spans, in microseconds. A source would sort all events of all times for each page otherwise.
    window: i64,
    /// Events of one query.
    limit: usize,
    /// Queries without a new event, one after the other.
    stuck: u32,
}

impl Walk {
    fn new(from: UnixMicros) -> Self {
        Self { from: (from, None), last: BTreeSet::new(), window: DAY, limit: PAGE, stuck: 0 }
    }

    /// The end of the window, which is not in it.
    fn end(&self) -> UnixMicros {
        UnixMicros(self.from.0.0.saturating_add(self.window))
    }

    /// Asks for less, if that may help; `false` if it may not.
    fn shrink(&mut self, fault: &Fault) -> bool {
        if is_too_large(fault) && self.limit > PAGE_MIN {
            self.limit = (self.limit / 2).max(PAGE_MIN);
            return true;
        }
        if is_too_slow(fault) && self.window > WINDOW_MIN {
            self.window = (self.window / 4).max(WINDOW_MIN);
            return true;
        }
        false
    }

    /// Goes on behind `rows`, of which `news` are new. `false` if it cannot.
    fn advance(&mut self, rows: &[Row], news: usize) -> bool {
        let end = rows.last().map(|row| (row.at, Some(row.uuid)));
        match end.filter(|_| rows.len() >= self.limit) {
            Some(end) if end == self.from && news == 0 => {
                // As many as a query gives have one time and one id.
                (self.limit, self.stuck) = (self.limit * 2, self.stuck + 1);
                self.limit <= PAGE_MAX && self.stuck <= STUCK_MAX
            }
            Some(end) => {
                self.last = rows.iter().map(Row::key).collect();
                (self.from, self.limit, self.stuck) = (end, (self.limit * 2).min(PAGE), 0);
                true
            }
            None => {
                self.last.clear();
                self.from = (self.end(), None);
                if rows.len() < self.limit / 4 {
                    self.window = self.window.saturating_mul(2).min(WINDOW_MAX);
                }
                (self.limit, self.stuck) = ((self.limit * 2).min(PAGE), 0);
                true
            }
        }
    }
}

/// Copies the events.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let since = match transfer.options.events {
        Events::None => return Ok(()),
        Events::All => FIRST,
        Events::Since(since) => since.max(FIRST),
    };
    // On from the last one, unless events are wanted that were not before.
    let is_covered = transfer.state.events_since.is_some_and(|begin| begin <= since.0);
    let until = transfer.state.events_until.filter(|_| is_covered).map(UnixMicros);
    if !is_covered {
        transfer.state.events_since = Some(since.0);
        transfer.state.events_until = None;
    }
    let from = until.unwrap_or(since).max(since);
    let (first, last) = match range(&transfer.source, from).await {
        Ok(Some(range)) => range,
        Ok(None) => return finish(transfer),
        Err(fault) => return transfer.all_left(Kind::Event, fault),
    };
    let (mut walk, mut count) = (Walk::new(from.max(first)), 0_u64);
    while walk.from.0 <= last {
        let rows = match page(&transfer.source, walk.from, walk.end(), walk.limit).await {
            Ok(rows) => rows,
            Err(fault) if walk.shrink(&fault) => continue,
            Err(fault) => return transfer.all_left(Kind::Event, fault),
        };
        check(transfer, &rows, &walk)?;
        let news: Vec<&Row> = rows.iter().filter(|row| !walk.last.contains(&row.key())).collect();
        let new_count = news.len();
        count += u64::try_from(new_count).unwrap_or_default();
        send(transfer, &news).await?;
        transfer.reached(Kind::Event, count);
        let reached = rows.last().map_or(walk.from.0, |row| row.at);
        if !walk.advance(&rows, new_count) {
            return Err(out_of_order(transfer).into());
        }
        transfer.state.events_until = Some(reached.0.max(from.0));
        transfer.keep()?;
    }
    finish(transfer)
}

/// Forgets how far the walk was: the next run begins at the first event again, and so brings those that arrived in the
/// meantime with an older time.
fn finish(transfer: &mut Transfer) -> Result<(), Stop> {
    (transfer.state.events_since, transfer.state.events_until) = (None, None);
    transfer.keep()
}

/// The times of the first and of the last event from a time on; `None` without one.
async fn range(
    source: &Project,
    from: UnixMicros,
) -> Result<Option<(UnixMicros, UnixMicros)>, Fault> {
    let sql = format!(
        "SELECT count() AS events, min(timestamp) AS first, max(timestamp) AS last FROM events \
         WHERE timestamp >= {}",
        instant(from)
    );
    let rows = select(source, &sql).await?;
    let row = rows.first().unwrap_or(&Value::Null);
    if row.get(0).and_then(Value::as_u64) == Some(0) {
        return Ok(None);
    }
    let at = |place: usize| row.get(place).and_then(Value::as_str).and_then(time::parse_timestamp);
    match (at(1), at(2)) {
        (Some(first), Some(last)) if first <= last => Ok(Some((first, last))),
        _ => {
            let at = source.server.at("POST", &source.path("query/"));
            Err(Fault::malformed(&at, "the times of the first and the last event are none"))
        }
    }
}

/// Checks that events are those that were asked for, in their order: otherwise some would be missed.
fn check(transfer: &Transfer, rows: &[Row], walk: &Walk) -> Result<(), Fault> {
    let places = rows.iter().map(|row| (row.at, Some(row.uuid)));
    let is_sorted = std::iter::once(walk.from).chain(places).is_sorted()
        && rows.last().is_none_or(|row| row.at < walk.end());
    match rows.len() > walk.limit {
        true => Err(wrong(transfer, "more events come than were asked for")),
        false if is_sorted => Ok(()),
        false => Err(out_of_order(transfer)),
    }
}

fn out_of_order(transfer: &Transfer) -> Fault {
    wrong(transfer, "the events do not come in the order of their times and ids")
}

fn wrong(transfer: &Transfer, what: &str) -> Fault {
    let at = transfer.source.server.at("POST", &transfer.source.path("query/"));
    Fault::malformed(&at, what)
}

/// Whether a smaller page may be answered.
fn is_too_large(fault: &Fault) -> bool {
    matches!(fault.what, What::TooLarge { .. } | What::Refused { status: 413, .. })
}

/// Whether a query of less time may be answered.
fn is_too_slow(fault: &Fault) -> bool {
    match &fault.what {
        What::Late { .. } => true,
        What::Refused { status: 408 | 504 | 512, .. } => true,
        What::Refused { status, detail, .. } => {
            let detail = detail.to_ascii_lowercase();
            let says = |word: &str| detail.contains(word);
            matches!(status, 400 | 500 | 503)
                && (says("timeout") || says("timed out") || says("too long") || says("memory"))
        }
        What::Unreachable(_) | What::TooLarge { .. } | What::Malformed(_) => false,
    }
}

/// The events from a time and an id on.
async fn page(
    source: &Project,
    (at, uuid): (UnixMicros, Option<Uuid>),
    end: UnixMicros,
    limit: usize,
) -> Result<Vec<Row>, Fault> {
    let (at, end) = (instant(at), instant(end));
    let after = uuid.map_or_else(String::new, |uuid| {
        format!(" AND (timestamp > {at} OR toString(uuid) >= '{uuid}')")
    });
    let sql = format!(
        "SELECT toString(uuid) AS id, event, distinct_id, timestamp, properties, elements_chain FROM events \
         WHERE timestamp >= {at} AND timestamp < {end}{after} ORDER BY timestamp, toString(uuid) LIMIT {limit}"
    );
    let rows = select(source, &sql).await?;
    let path = source.server.at("POST", &source.path("query/"));
    rows.iter().map(|row| Row::of(row, &path)).collect()
}

/// The rows of SQL, never of a cache.
async fn select(project: &Project, sql: &str) -> Result<Vec<Value>, Fault> {
    let path = project.path("query/");
    let body = json!({
        "query": {"kind": "HogQLQuery", "query": sql}, "refresh": "force_blocking",
    });
    let mut answer = project.server.put("POST", &path, &body, Repeat::Always).await?;
    match answer.get_mut("results").map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows),
        _ => {
            let at = project.server.at("POST", &path);
            Err(Fault::malformed(&at, "no list of results in the answer"))
        }
    }
}

/// An instant in SQL.
fn instant(at: UnixMicros) -> String {
    let text = at.to_rfc3339();
    let text = text.trim_end_matches('Z').replace('T', " ");
    format!("toDateTime64('{text}', 6, 'UTC')")
}

impl Row {
    fn key(&self) -> Key {
        (self.at, self.uuid, self.event.clone(), self.distinct_id.clone())
    }

    fn of(row: &Value, at: &str) -> Result<Self, Fault> {
        let wrong = |what: &str| Fault::malformed(at, format!("an event has {what}"));
        let text = |place: usize| row.get(place).and_then(Value::as_str);
        let uuid = text(0).and_then(|id| Uuid::try_parse(id).ok());
        let written = text(3).ok_or_else(|| wrong("no timestamp"))?;
        let at = time::parse_timestamp(written);
        let properties = match row.get(4) {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            Some(Value::Object(object)) => json!(object).to_string(),
            None | Some(Value::Null | Value::String(_)) => "{}".to_owned(),
            Some(_) => return Err(wrong("properties of another type")),
        };
        Ok(Self {
            at: at.ok_or_else(|| wrong("a timestamp that is none"))?,
            uuid: uuid.ok_or_else(|| wrong("no id"))?,
            event: text(1).ok_or_else(|| wrong("no name"))?.to_owned(),
            distinct_id: text(2).ok_or_else(|| wrong("no distinct id"))?.to_owned(),
            properties,
            elements_chain: text(5).unwrap_or_default().to_owned(),
        })
    }

    /// The event as capture takes it, with its properties as they were written; `None` if these are no JSON object.
    fn event(&self) -> Option<String> {
        let properties = self.properties.trim();
        let inner = properties.strip_prefix('{')?.strip_suffix('}')?;
        let seed = std::marker::PhantomData::<Box<RawValue>>;
        reading::read_as(seed, properties.as_bytes()).ok()?;
        let chain = match (self.elements_chain.is_empty(), inner.trim().is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!("\"$elements_chain\":{}", json!(self.elements_chain)),
            (false, false) => format!(",\"$elements_chain\":{}", json!(self.elements_chain)),
        };
        Some(format!(
            "{{\"event\":{},\"distinct_id\":{},\"uuid\":\"{}\",\"timestamp\":\"{}\",\"properties\":{{{inner}{chain}}}}}",
            json!(self.event),
            json!(self.distinct_id),
            self.uuid,
            self.at.to_rfc3339(),
        ))
    }
}

/// Sends the events that the target does not have.
async fn send(transfer: &mut Transfer, rows: &[&Row]) -> Result<(), Stop> {
    let known = known(&transfer.target, rows).await?;
    let mut batch = Batch::new(transfer.target.text("api_token"), Only::Events);
    for row in rows {
        if known.contains(&row.key()) {
            transfer.report.count(Kind::Event, Outcome::Same, 1);
            continue;
        }
        let Some(event) = row.event() else {
            let reason = "its properties are no JSON object";
            transfer.report.note(Kind::Event, Outcome::Left, &row.uuid.to_string(), reason);
            continue;
        };
        if batch.is_full(event.len()) {
            transfer.post(&mut batch, Kind::Event).await?;
        }
        batch.add(&event);
        batch.becomes(Outcome::Made);
    }
    transfer.post(&mut batch, Kind::Event).await
}

/// Which of these events the target has.
async fn known(target: &Project, rows: &[&Row]) -> Result<BTreeSet<Key>, Fault> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Ok(BTreeSet::new());
    };
    let ids: Vec<String> = rows.iter().map(|row| format!("'{}'", row.uuid)).collect();
    let sql = format!(
        "SELECT toString(uuid) AS id, event, distinct_id, timestamp FROM events \
         WHERE timestamp >= {} AND timestamp <= {} AND uuid IN ({})",
        instant(first.at),
        instant(last.at),
        ids.join(", ")
    );
    let found = select(target, &sql).await?;
    let at = target.server.at("POST", &target.path("query/"));
    let keys = found.iter().map(|row| Row::of(row, &at).map(|row| row.key()));
    keys.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::{DAY, Key, Row, Walk, instant};
    use weir_base::clock::UnixMicros;

    const AT: UnixMicros = UnixMicros(1_795_262_400_000_001);

    #[test]
    fn instants_keep_their_microseconds() {
        assert_eq!(instant(AT), "toDateTime64('2026-11-21 12:00:00.000001', 6, 'UTC')");
    }

    fn row(at: i64, id: u128) -> Row {
        Row {
            at: UnixMicros(at),
            uuid: Uuid::from_u128(id),
            event: "e".to_owned(),
            distinct_id: "d".to_owned(),
            properties: "{}".to_owned(),
            elements_chain: String::new(),
        }
    }

    /// What a walk finds of these events, in order: a source that answers as it is asked, and fails now and then.
    fn walked(events: &[Row]) -> Option<Vec<Key>> {
        let mut walk = Walk::new(events[0].at);
        let (mut found, last, mut queries) = (Vec::new(), events.last()?.at, 0);
        while walk.from.0 <= last {
            queries += 1;
            assert!(queries < 10_000, "it does not end: {walk:?}");
            let (at, id) = walk.from;
            let is_in = |row: &&Row| {
                (row.at > at || (row.at == at && id.is_none_or(|id| row.uuid >= id)))
                    && row.at < walk.end()
            };
            let rows: Vec<Row> =
                events.iter().filter(is_in).take(walk.limit).map(Row::copy).collect();
            if queries % 7 == 3 && walk.limit > 4 {
                walk.limit /= 2;
                continue;
            }
            let news: Vec<Key> =
                rows.iter().map(Row::key).filter(|key| !walk.last.contains(key)).collect();
            let count = news.len();
            found.extend(news);
            if !walk.advance(&rows, count) {
                return None;
            }
        }
        Some(found)
    }

    impl Row {
        fn copy(&self) -> Self {
            let mut copy = row(self.at.0, self.uuid.as_u128());
            copy.event.clone_from(&self.event);
            copy
        }
    }

    #[test]
    fn each_event_is_found_once_whatever_the_times() {
        let keys = |events: &[Row]| -> Vec<Key> { events.iter().map(Row::key).collect() };
        let every = |step: i64, count: u128| -> Vec<Row> {
            (0..count).map(|n| row(AT.0 + i64::try_from(n).unwrap() * step, n)).collect()
        };
        for (what, events) in [
            ("one", every(0, 1)),
            ("all at once", every(0, 5_300)),
            ("dense", every(1, 5_300)),
            ("a minute apart", every(60_000_000, 4_000)),
            ("weeks apart", every(17 * DAY, 300)),
            ("far apart", every(3_000 * DAY, 5)),
        ] {
            assert_eq!(walked(&events).as_deref(), Some(&keys(&events)[..]), "{what}");
        }
        // One id and one time, under many names: found as long as one query can have all of them.
        let twins = |count: usize| -> Vec<Row> {
            let twin = |n| Row { event: format!("{n:05}"), ..row(AT.0, 1) };
            (0..count).map(twin).chain([row(AT.0 + 1, 2)]).collect()
        };
        assert_eq!(walked(&twins(3_000)), Some(keys(&twins(3_000))));
        assert_eq!(walked(&twins(40_000)), None);
    }

    #[test]
    fn rows_are_read_in_the_forms_of_both_servers() {
        let id = "018e7f5a-0000-7000-8000-000000000001";
        for (written, properties, expected) in [
            ("2026-11-21T12:00:00.000001Z", json!("{\"a\": 1.50}"), "{\"a\": 1.50}"),
            ("2026-11-21T13:00:00.000001+01:00", json!({"a": 1}), "{\"a\":1}"),
            ("2026-11-21 12:00:00.000001", json!(null), "{}"),
        ] {
            let row = json!([id, "e", "d", written, properties, null]);
            let row = Row::of(&row, "x").unwrap();
            assert_eq!((row.at, row.properties.as_str()), (AT, expected), "{written}");
        }
        for wrong in [
            json!({}),
            json!(["x", "e", "d", "2026-11-21T12:00:00Z", "{}", ""]),
            json!([id, 7, "d", "2026-11-21T12:00:00Z", "{}", ""]),
            json!([id, "e", null, "2026-11-21T12:00:00Z", "{}", ""]),
            json!([id, "e", "d", "soon", "{}", ""]),
            json!([id, "e", "d", "2026-11-21T12:00:00Z", [], ""]),
        ] {
            assert!(Row::of(&wrong, "x").is_err(), "{wrong}");
        }
    }

    #[test]
    fn properties_stay_as_they_were_written() {
        for (properties, chain, expected) in [
            (
                "{\"price\": 1.50, \"big\": 123456789012345678901234567890}",
                "",
                Some("{\"price\": 1.50, \"big\": 123456789012345678901234567890}"),
            ),
            (" {} ", "a:text=\"x\"", Some("{\"$elements_chain\":\"a:text=\\\"x\\\"\"}")),
            ("{\"a\":1}", "a", Some("{\"a\":1,\"$elements_chain\":\"a\"}")),
            ("[]", "", None),
            ("{\"a\":1} }", "", None),
            ("{\"a\"", "", None),
            ("{} , {}", "", None),
        ] {
            let row = Row {
                at: AT,
                uuid: Uuid::nil(),
                event: "say \"x\"".to_owned(),
                distinct_id: "\u{1f600}".to_owned(),
                properties: properties.to_owned(),
                elements_chain: chain.to_owned(),
            };
            let event = row.event();
            let Some(expected) = expected else {
                assert_eq!(event, None, "{properties}");
                continue;
            };
            let event = event.unwrap();
            assert!(event.ends_with(&format!("\"properties\":{expected}}}")), "{event}");
            let read: Value = serde_json::from_str(&event).unwrap();
            assert_eq!(
                (&read["event"], &read["distinct_id"]),
                (&json!("say \"x\""), &json!("\u{1f600}"))
            );
        }
    }
}
