//! Timeline of a person: when its crucial properties changed, or with a group type those of the groups of its events,
//! and how many counted events lie between two changes. See [`Timeline`].
//!
//! Events do not contain the properties of their person or group. The properties of a person at an event are computed
//! by a replay of its events up to then ([`property_replay`]), those of a group from the events that set them.

pub mod walk;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::date_range::DateRange;
use crate::events::{EventRow, history};
use crate::timeline::walk::{Point, Walk};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_identity::person::Person;
use weir_identity::property_replay;
use weir_identity::property_replay::PropertyReplay;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;

/// Most groups in one timeline.
const GROUPS_MAX: usize = 100;

/// Most events in one timeline of groups.
const GROUP_EVENTS_MAX: usize = 1_000_000;

/// A timeline request.
#[derive(Debug, Default, PartialEq)]
pub struct Timeline {
    /// Names of the events that are counted; `None` for all.
    pub events: Option<HashSet<String>>,
    /// The crucial properties: those that are filtered or broken down by.
    pub keys: BTreeSet<String>,
    /// The type of the groups that have the properties; `None` for those of the person.
    pub group_type: Option<u8>,
}

/// Error of a timeline.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The events could not be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// There are too many groups, each of which costs memory for its properties.
    #[error("The events of the person are of more than {GROUPS_MAX} groups.")]
    TooManyGroups,
    /// The properties cannot be encoded as JSON: a bug.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Timeline {
    /// The changes for one person within a date range.
    pub fn points<'a>(
        &'a self,
        engine: &'a Engine,
        project: ProjectId,
        person: &'a Person,
        range: &'a DateRange,
    ) -> BoxFuture<'a, Result<Vec<Point>, TimelineError>> {
        Box::pin(async move {
            engine.note_events_named(project, self.events.iter().flatten().map(String::as_str));
            match self.group_type {
                Some(index) => of_groups(engine, (project, person), (self, index), range).await,
                None => of_person(engine, (project, person), self, range).await,
            }
        })
    }

    /// Whether the query counts this event.
    fn counts(&self, row: &EventRow, range: &DateRange) -> bool {
        self.events.as_ref().is_none_or(|names| names.contains(&row.event))
            && row.timestamp >= range.from
            && row.timestamp <= range.to
    }
}

/// The changes of the person's own properties.
async fn of_person(
    engine: &Engine,
    (project, person): (ProjectId, &Person),
    timeline: &Timeline,
    range: &DateRange,
) -> Result<Vec<Point>, TimelineError> {
    let (mut walk, mut replay) = (Walk::new(&timeline.keys), PropertyReplay::default());
    let events = history::of_person(engine, project, person.uuid, range.to).await;
    let mut events = events?;
    while let Some(rows) = events.next().await {
        for row in rows? {
            if let Some(update) = property_replay::update(&row.event, &properties(&row)) {
                replay.step(update);
            }
            if timeline.counts(&row, range) {
                walk.count(row.timestamp, replay.properties())?;
            }
        }
    }
    Ok(walk.points())
}

/// The changes of the properties of the groups of one type that the person's events belong to. An event
/// without a group has no properties.
async fn of_groups(
    engine: &Engine,
    (project, person): (ProjectId, &Person),
    (timeline, index): (&Timeline, u8),
    range: &DateRange,
) -> Result<Vec<Point>, TimelineError> {
    let (seen, keys) = groups_seen(engine, (project, person), (timeline, index), range).await?;
    let places: HashMap<&str, usize> = keys.iter().map(String::as_str).zip(0..).collect();
    let (mut groups, nobody) = (vec![Map::new(); keys.len()], Map::new());
    let (mut walk, mut seen) = (Walk::new(&timeline.keys), seen.into_iter().peekable());
    let snapshot = engine.metadata().snapshot();
    let types = snapshot.group_types(project);
    if let Some(name) = types.get(usize::from(index)).filter(|_| !keys.is_empty()) {
        let says = history::of_groups(engine, project, (name, &keys), range.to).await;
        let mut says = says?;
        while let Some(rows) = says.next().await {
            for row in rows? {
                while let Some((at, place)) = seen.next_if(|(at, _)| *at < row.timestamp) {
                    walk.count(at, place.and_then(|place| groups.get(place)).unwrap_or(&nobody))?;
                }
                let event = properties(&row);
                let place = text(event.get("$group_key")).and_then(|key| places.get(&*key));
                if let (Some(group), Some(Value::Object(set))) =
                    (place.and_then(|place| groups.get_mut(*place)), event.get("$group_set"))
                {
                    group.extend(set.clone());
                }
            }
        }
    }
    for (at, place) in seen {
        walk.count(at, place.and_then(|place| groups.get(place)).unwrap_or(&nobody))?;
    }
    Ok(walk.points())
}

/// The time of a counted event, and the index of its group among the keys.
type Seen = (UnixMicros, Option<usize>);

/// The counted events of a person, and the keys of the groups of one type in them.
async fn groups_seen(
    engine: &Engine,
    (project, person): (ProjectId, &Person),
    (timeline, index): (&Timeline, u8),
    range: &DateRange,
) -> Result<(Vec<Seen>, Vec<String>), TimelineError> {
    let (mut seen, mut places) = (Vec::new(), HashMap::new());
    let property = format!("$group_{index}");
    let events = history::of_person(engine, project, person.uuid, range.to).await;
    let mut events = events?;
    while let Some(rows) = events.next().await {
        for row in rows? {
            if !timeline.counts(&row, range) {
                continue;
            }
            let next = places.len();
            let place = text(properties(&row).get(&property))
                .map(|key| *places.entry(key.into_owned()).or_insert(next));
            seen.push((row.timestamp, place));
            if places.len() > GROUPS_MAX {
                return Err(TimelineError::TooManyGroups);
            }
            if seen.len() > GROUP_EVENTS_MAX {
                return Err(QueryError::TooManyRows(GROUP_EVENTS_MAX).into());
            }
        }
    }
    let mut keys: Vec<(String, usize)> = places.into_iter().collect();
    keys.sort_unstable_by_key(|(_, place)| *place);
    Ok((seen, keys.into_iter().map(|(key, _)| key).collect()))
}

/// The stored properties of an event.
fn properties(row: &EventRow) -> Map<String, Value> {
    json::read(row.properties.as_bytes()).unwrap_or_default()
}

/// A group key: a string, or a number as text.
fn text(key: Option<&Value>) -> Option<Cow<'_, str>> {
    match key? {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}
