//! The event that set each property of a person: [`find`]. Two passes over the person's events: one over the distinct
//! values of `$set` and `$set_once`, one over the properties of the browser that the server sets.

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use serde_json::{Map, Value};

use crate::response::Problem;
use crate::routes::pages::visit::Asking;
use weir_event::auto_set::AUTO_SET;
use weir_event::json;
use weir_web::pages::events::Drawn;
use weir_web::parts::{literal, plain};

/// Most distinct values of `$set` and `$set_once` that are examined, the newest ones.
const SETS_MAX: usize = 2000;

/// Most properties set by the server for which events are searched.
const AUTO_SET_MAX: usize = 60;

/// Longest value of such a property, in bytes.
const VALUE_MAX_BYTES: usize = 1000;

/// The events that set the current values of the properties of a person, by property: each with `id`, `event` and
/// `timestamp`. For a property of `$set` it is the newest event, for one of `$set_once` the oldest. `uuid` is the
/// person's.
///
/// # Errors
///
/// The events cannot be read.
pub(super) async fn find(
    asking: &Asking,
    uuid: &str,
    properties: &Map<String, Value>,
) -> Result<Vec<(String, Drawn)>, Problem> {
    let mut found: BTreeMap<&str, Drawn> = BTreeMap::new();
    let sets = asking.sql(&sets_sql(uuid)).await?;
    let sets: Vec<Set> = sets.results.iter().filter_map(|row| Set::of(row)).collect();
    for (name, value) in properties {
        // The newest come first.
        let always = sets.iter().find(|set| set.always.get(name) == Some(value));
        let once = sets.iter().filter(|set| set.once.get(name) == Some(value));
        let once = once.min_by_key(|set| moment(&set.first)).map(|set| &set.first);
        if let Some(event) = always.map(|set| &set.last).or(once) {
            found.insert(name, event.clone());
        }
    }
    let wanted = wanted(properties);
    if !wanted.is_empty() {
        let answer = asking.sql(&auto_set_sql(uuid, &wanted)).await?;
        for (own, cell) in wanted.iter().zip(answer.results.first().into_iter().flatten()) {
            let Some(event) = cell.as_str().and_then(event_of) else { continue };
            let before = found.get(own.name).map(moment);
            let is_it = before.is_none_or(|before| match own.is_first {
                true => moment(&event) < before,
                false => moment(&event) > before,
            });
            if is_it {
                found.insert(own.name, event);
            }
        }
    }
    Ok(found.into_iter().map(|(name, event)| (name.to_owned(), event)).collect())
}

/// A value of `$set` and one of `$set_once`, and the first and the last event that had both.
struct Set {
    always: Value,
    once: Value,
    first: Drawn,
    last: Drawn,
}

impl Set {
    fn of(row: &[Value]) -> Option<Self> {
        let cell = |at: usize| row.get(at).and_then(Value::as_str);
        let object = |at: usize| cell(at).and_then(|own| json::restore(own.as_bytes()).ok());
        Some(Self {
            always: object(0).unwrap_or_default(),
            once: object(1).unwrap_or_default(),
            first: event_of(cell(2)?)?,
            last: event_of(cell(3)?)?,
        })
    }
}

/// A property that the server sets: its name on the person, its name in events, the value, and whether the first event
/// sets it.
struct Wanted<'p> {
    name: &'p str,
    of: &'p str,
    value: String,
    is_first: bool,
}

fn wanted(properties: &Map<String, Value>) -> Vec<Wanted<'static>> {
    let value = |name: &str| {
        let value = properties.get(name).filter(|value| !value.is_null()).map(plain)?;
        (value.len() <= VALUE_MAX_BYTES).then_some(value)
    };
    let both = AUTO_SET.iter().flat_map(|(own, initial)| {
        let always = value(own).map(|value| Wanted { name: own, of: own, value, is_first: false });
        let first =
            value(initial).map(|value| Wanted { name: initial, of: own, value, is_first: true });
        [always, first]
    });
    both.flatten().take(AUTO_SET_MAX).collect()
}

/// A subquery of the events that create or change a person: the text that [`event_of`] parses, the time, and the
/// properties.
fn events_of(uuid: &str) -> String {
    format!(
        "SELECT concat(uuid, ' ', CAST(timestamp AS VARCHAR), ' ', event) AS own, timestamp AS t, properties AS p \
         FROM events WHERE person_id = {} AND coalesce(properties ->> '$process_person_profile', '') <> 'false'",
        literal(uuid)
    )
}

fn sets_sql(uuid: &str) -> String {
    format!(
        "SELECT always, once, first_value(own ORDER BY t) AS first_own, last_value(own ORDER BY t) AS last_own FROM (\
         SELECT own, t, json_get_json(p, '$set') AS always, json_get_json(p, '$set_once') AS once FROM ({})) \
         WHERE always IS NOT NULL OR once IS NOT NULL GROUP BY always, once ORDER BY max(t) DESC LIMIT {SETS_MAX}",
        events_of(uuid)
    )
}

fn auto_set_sql(uuid: &str, wanted: &[Wanted<'_>]) -> String {
    let column = |(own, at): (&Wanted<'_>, usize)| {
        let which = if own.is_first { "first_value" } else { "last_value" };
        let (of, value) = (literal(own.of), literal(&own.value));
        format!("{which}(own ORDER BY t) FILTER (WHERE (p ->> {of}) = {value}) AS n{at}")
    };
    let columns: Vec<String> = wanted.iter().zip(0..).map(column).collect();
    format!("SELECT {} FROM ({})", columns.join(", "), events_of(uuid))
}

/// Parses the text of an event: its uuid, its time and its name, which may contain spaces.
fn event_of(own: &str) -> Option<Drawn> {
    let mut parts = own.splitn(3, ' ');
    let (uuid, time, name) = (parts.next()?, parts.next()?, parts.next()?);
    let (id, timestamp, event) = (uuid.to_owned(), time.to_owned(), name.to_owned());
    Some(Drawn { id, timestamp, event, ..Drawn::default() })
}

fn moment(event: &Drawn) -> Option<DateTime<FixedOffset>> {
    DateTime::parse_from_rfc3339(&event.timestamp).ok()
}
