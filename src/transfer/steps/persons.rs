//! Persons with all their distinct ids, sent as events that are not stored: the first one creates the person at the time
//! at which it was first seen, each further one merges one more distinct id into it.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::batches::{Batch, Only};
use crate::fault::Fault;
use crate::pages::Pages;
use crate::report::Outcome;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer, escaped};

/// Persons of one page.
const PAGE: usize = 1_000;

/// Distinct ids of one person that lists have at least; of a person with so many, all are asked for.
const LISTED_IDS: usize = 1_000;

/// Longest distinct id, in characters; the target would cut a longer one.
const DISTINCT_ID_MAX_CHARS: usize = 200;

/// Property of a person: the id of the event that created it.
const CREATOR: &str = "$creator_event_uuid";

/// Copies the persons.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let source = transfer.source.server.clone();
    let path = transfer.source.path(&format!("persons/?limit={PAGE}"));
    let mut pages = Pages::new(&source, &path);
    let only = Only::Persons { is_overwriting: transfer.options.is_overwriting };
    let mut batch = Batch::new(transfer.target.text("api_token"), only);
    let (mut count, mut unmarked) = (0_u64, 0_u64);
    loop {
        let rows = match pages.next().await {
            Ok(Some(rows)) => rows,
            Ok(None) => break,
            Err(fault) => {
                transfer.all_left(Kind::Person, fault)?;
                break;
            }
        };
        for row in &rows {
            let person = Person::of(transfer, row).await?;
            for event in person.events() {
                if batch.is_full(event.len()) {
                    transfer.post(&mut batch, Kind::Person).await?;
                }
                batch.add(&event);
            }
            if !person.ids.is_empty() {
                batch.becomes(Outcome::Sent);
            }
            person.note(transfer);
            unmarked += u64::from(person.is_identified && person.ids.len() == 1);
        }
        count += u64::try_from(rows.len()).unwrap_or_default();
        transfer.reached(Kind::Person, count);
    }
    transfer.post(&mut batch, Kind::Person).await?;
    if unmarked > 0 {
        let reason =
            "they are not marked as identified: each has one distinct id, and so was not merged";
        let name = format!("{unmarked} persons");
        transfer.report.note(Kind::Person, Outcome::Kept, &name, reason);
    }
    Ok(())
}

/// A person of the source.
#[derive(Debug, Default)]
struct Person {
    ids: Vec<String>,
    /// Distinct ids that the target would cut.
    long: usize,
    created_at: Option<String>,
    properties: Map<String, Value>,
    is_identified: bool,
}

impl Person {
    async fn of(transfer: &Transfer, row: &Value) -> Result<Self, Fault> {
        let mut ids = ids(row);
        let uuid = row.get("uuid").or_else(|| row.get("id")).and_then(Value::as_str);
        if let Some(uuid) = uuid.filter(|_| ids.len() >= LISTED_IDS) {
            let path = transfer.source.path(&format!("persons/{}/", escaped(uuid)));
            ids = self::ids(&transfer.source.server.get(&path).await?);
        }
        let all = ids.len();
        ids.retain(|id| id.chars().nth(DISTINCT_ID_MAX_CHARS).is_none());
        let properties = row.get("properties").and_then(Value::as_object);
        Ok(Self {
            long: all - ids.len(),
            ids,
            created_at: row.get("created_at").and_then(Value::as_str).map(str::to_owned),
            properties: properties.cloned().unwrap_or_default(),
            is_identified: row.get("is_identified") == Some(&Value::Bool(true)),
        })
    }

    /// The events that make the person. The first has the id of the event that created it in the source, which becomes
    /// a property of it again.
    fn events(&self) -> Vec<String> {
        let Some((first, others)) = self.ids.split_first() else { return Vec::new() };
        let creator = self.properties.get(CREATOR).and_then(Value::as_str);
        let creator = creator.and_then(|id| Uuid::try_parse(id).ok());
        let uuid = creator.unwrap_or_else(|| Uuid::new_v5(&Uuid::NAMESPACE_OID, first.as_bytes()));
        let event = |name: &str, other: Option<&String>, set: Option<&Map<String, Value>>| {
            let mut properties = Map::new();
            if let Some(other) = other {
                properties.insert("alias".to_owned(), json!(other));
            }
            if let Some(set) = set {
                properties.insert("$set".to_owned(), json!(set));
            }
            let event = json!({
                "event": name, "distinct_id": first, "uuid": uuid,
                "timestamp": self.created_at, "properties": properties,
            });
            event.to_string()
        };
        let mut merges = others.iter();
        let begin = match merges.next() {
            None => event("$set", None, Some(&self.properties)),
            Some(other) => event("$merge_dangerously", Some(other), Some(&self.properties)),
        };
        let merges = merges.map(|other| event("$merge_dangerously", Some(other), None));
        std::iter::once(begin).chain(merges).collect()
    }

    /// Notes what of it cannot come.
    fn note(&self, transfer: &mut Transfer) {
        let Some(first) = self.ids.first() else {
            let reason = "it has no distinct id that the target can have";
            return transfer.report.note(Kind::Person, Outcome::Left, "", reason);
        };
        if self.long > 0 {
            let reason = format!(
                "{} of its distinct ids have more than {DISTINCT_ID_MAX_CHARS} characters",
                self.long
            );
            transfer.report.note(Kind::Person, Outcome::Left, first, reason);
        }
    }
}

fn ids(row: &Value) -> Vec<String> {
    let ids = row.get("distinct_ids").and_then(Value::as_array).into_iter().flatten();
    ids.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Person;

    #[test]
    fn a_person_is_created_once_and_gains_its_other_ids() {
        let person = |ids: &[&str]| Person {
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            created_at: Some("2026-01-02T03:04:05.000006Z".to_owned()),
            properties: serde_json::Map::from_iter([("plan".to_owned(), json!("pro"))]),
            ..Person::default()
        };
        let told = |person: Person| -> Vec<(Value, Value, Value)> {
            let events = person.events().into_iter();
            let parse = |event: String| -> Value { serde_json::from_str(&event).unwrap() };
            let short = |event: Value| {
                assert_eq!(event["distinct_id"], "a");
                assert_eq!(event["timestamp"], "2026-01-02T03:04:05.000006Z");
                let own = &event["properties"];
                (event["event"].clone(), own["alias"].clone(), own.clone())
            };
            events.map(parse).map(short).collect()
        };
        assert_eq!(told(person(&[])), []);
        let set = json!({"$set": {"plan": "pro"}});
        assert_eq!(told(person(&["a"])), [(json!("$set"), json!(null), set)]);
        let merge = json!("$merge_dangerously");
        assert_eq!(
            told(person(&["a", "b", "\u{1f600}"])),
            [
                (merge.clone(), json!("b"), json!({"alias": "b", "$set": {"plan": "pro"}})),
                (merge, json!("\u{1f600}"), json!({"alias": "\u{1f600}"})),
            ]
        );
    }
}
