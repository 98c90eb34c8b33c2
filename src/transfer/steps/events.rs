//! Events, by windows of time: each query of the source begins with the last event of the one before, so that events of
//! one time are neither lost nor sent twice. Events that the target has are not sent again.

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

/// Before all events: 1900, the first year that both servers know in queries.
const FIRST: UnixMicros = UnixMicros(-2_208_988_800_000_000);

/// Events of one query, at first. Halved where the answer is too large.
const PAGE: usize = 1_000;

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
    let mut from = (until.unwrap_or(since).max(since), None);
    let mut last: BTreeSet<Key> = BTreeSet::new();
    let (mut limit, mut count, mut stuck) = (PAGE, 0_u64, 0_u32);
    loop {
        let rows = match page(&transfer.source, from, limit).await {
            Ok(rows) => rows,
            Err(fault) if is_too_large(&fault) && limit > PAGE_MIN => {
                limit /= 2;
                continue;
            }
            Err(fault) => return transfer.all_left(Kind::Event, fault),
        };
        check(transfer, &rows, from, limit)?;
        let is_last = rows.len() < limit;
        let keys: BTreeSet<Key> = rows.iter().map(Row::key).collect();
        let new: Vec<&Row> = rows.iter().filter(|row| !last.contains(&row.key())).collect();
        count += u64::try_from(new.len()).unwrap_or_default();
        send(transfer, &new).await?;
        transfer.reached(Kind::Event, count);
        let Some(end) = rows.last() else { break };
        let next = (end.at, Some(end.uuid));
        if next == from && new.is_empty() && !is_last {
            (limit, stuck) = (limit * 2, stuck + 1);
            if limit > PAGE_MAX || stuck > STUCK_MAX {
                return Err(out_of_order(transfer).into());
            }
            continue;
        }
        transfer.state.events_until = Some(end.at.0);
        transfer.keep()?;
        if is_last {
            break;
        }
        (from, last, limit, stuck) = (next, keys, (limit * 2).min(PAGE), 0);
    }
    Ok(())
}

/// Checks that events are those that were asked for, in their order: otherwise some would be missed.
fn check(
    transfer: &Transfer,
    rows: &[Row],
    from: (UnixMicros, Option<Uuid>),
    limit: usize,
) -> Result<(), Fault> {
    let places = rows.iter().map(|row| (row.at, Some(row.uuid)));
    let is_sorted = std::iter::once(from).chain(places).is_sorted();
    match rows.len() > limit {
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
    matches!(fault.what, What::TooLarge { .. } | What::Refused { status: 413 | 504, .. })
}

/// The events from a time and an id on.
async fn page(
    source: &Project,
    (at, uuid): (UnixMicros, Option<Uuid>),
    limit: usize,
) -> Result<Vec<Row>, Fault> {
    let at = instant(at);
    let after = uuid.map_or_else(String::new, |uuid| {
        format!(" AND (timestamp > {at} OR toString(uuid) >= '{uuid}')")
    });
    let sql = format!(
        "SELECT toString(uuid) AS id, event, distinct_id, timestamp, properties, elements_chain FROM events \
         WHERE timestamp >= {at}{after} ORDER BY timestamp, toString(uuid) LIMIT {limit}"
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
        let at = time::parse_rfc3339(written).or_else(|| time::parse_timestamp(written));
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
            post(transfer, &mut batch).await?;
        }
        batch.add(&event);
    }
    post(transfer, &mut batch).await
}

async fn post(transfer: &mut Transfer, batch: &mut Batch) -> Result<(), Stop> {
    let count = u64::try_from(batch.len()).unwrap_or_default();
    if count == 0 {
        return Ok(());
    }
    let server = transfer.target.server.clone();
    let answer = server.put_text("POST", "/batch/", batch.take(), Repeat::Always).await?;
    let mut dropped = 0;
    for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        let events = warning.get("events").and_then(Value::as_u64).unwrap_or_default();
        let detail = warning.get("detail").and_then(Value::as_str).unwrap_or_default();
        dropped += events;
        transfer.report.note(Kind::Event, Outcome::Left, &format!("{events} events"), detail);
    }
    transfer.report.count(Kind::Event, Outcome::Made, count.saturating_sub(dropped));
    Ok(())
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

    use super::{Row, instant};
    use weir_base::clock::UnixMicros;

    const AT: UnixMicros = UnixMicros(1_795_262_400_000_001);

    #[test]
    fn instants_keep_their_microseconds() {
        assert_eq!(instant(AT), "toDateTime64('2026-11-21 12:00:00.000001', 6, 'UTC')");
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
