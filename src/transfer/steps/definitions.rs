//! What people said of events and properties: descriptions, tags, types. Definitions themselves come with the events and
//! persons; those of events that were never sent are made.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::likeness::{is_like, is_nothing};
use crate::objects::{fields, send};
use crate::pages::Pages;
use crate::references::id_of;
use crate::report::Outcome;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer};
use weir_event::time;

const EVENTS: &str = "event_definitions/";
const PROPERTIES: &str = "property_definitions/";

/// What people say of an event.
const OF_EVENT: [&str; 7] = [
    "description",
    "tags",
    "verified",
    "hidden",
    "post_to_slack",
    "default_columns",
    "primary_property",
];

/// What people say of a property.
const OF_PROPERTY: [&str; 5] = ["description", "tags", "verified", "hidden", "property_type"];

/// Copies what people said.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    events(transfer).await?;
    let mut owners = vec![("type=event".to_owned()), ("type=person".to_owned())];
    let types = transfer.target.path("groups_types/");
    let types = Pages::new(&transfer.target.server, &types).all().await?;
    for index in 0..types.len() {
        owners.push(format!("type=group&group_type_index={index}"));
    }
    for owner in owners {
        properties(transfer, &owner).await?;
    }
    Ok(())
}

/// The objects of a list of the target by their names.
async fn by_name(transfer: &Transfer, path: &str) -> Result<BTreeMap<String, Value>, Stop> {
    let path = transfer.target.path(path);
    let all = Pages::new(&transfer.target.server, &path).all().await?;
    Ok(all.into_iter().filter_map(|own| Some((name(&own)?, own))).collect())
}

fn name(definition: &Value) -> Option<String> {
    definition.get("name").and_then(Value::as_str).map(str::to_owned)
}

async fn events(transfer: &mut Transfer) -> Result<(), Stop> {
    let path = format!("{EVENTS}?limit=500");
    let definitions = transfer.listed(Kind::EventDefinition, &path).await?;
    let mut known = by_name(transfer, &path).await?;
    for own in definitions {
        let Some(name) = name(&own) else { continue };
        let said = fields(&own, &OF_EVENT);
        let there = match known.remove(&name) {
            Some(there) => there,
            None => {
                let body = Map::from_iter([("name".to_owned(), json!(name))]);
                let path = transfer.target.path(EVENTS);
                match send(transfer, "POST", &path, &body).await {
                    Ok(made) => made,
                    Err(fault) if fault.refusal().is_some() => {
                        let reason = fault.what.to_string();
                        transfer.report.note(Kind::EventDefinition, Outcome::Left, &name, reason);
                        continue;
                    }
                    Err(fault) => return Err(fault.into()),
                }
            }
        };
        let times = times(&own, &there);
        say(transfer, Kind::EventDefinition, EVENTS, (said, times), &there).await?;
    }
    Ok(())
}

/// When the event was seen first and last, where the source says more than the target.
fn times(own: &Value, there: &Value) -> Map<String, Value> {
    let at =
        |of: &Value, name: &str| of.get(name).and_then(Value::as_str).and_then(time::parse_rfc3339);
    let (created, last) = ("created_at", "last_seen_at");
    let is_older = at(own, created).is_some_and(|own| at(there, created).is_none_or(|at| own < at));
    let is_newer = at(own, last).is_some_and(|own| at(there, last).is_none_or(|at| own > at));
    let mut times = Map::new();
    for (name, is_better) in [(created, is_older), (last, is_newer)] {
        times.extend(fields(own, &[name]).into_iter().filter(|_| is_better));
    }
    times
}

async fn properties(transfer: &mut Transfer, owner: &str) -> Result<(), Stop> {
    let Some(source) = of_source(transfer, owner) else { return Ok(()) };
    let path = format!("{PROPERTIES}?limit=500&{source}");
    let definitions = transfer.listed(Kind::PropertyDefinition, &path).await?;
    let known = by_name(transfer, &format!("{PROPERTIES}?limit=500&{owner}")).await?;
    for own in definitions {
        let Some(name) = name(&own) else { continue };
        let said = fields(&own, &OF_PROPERTY);
        let says_something =
            said.iter().any(|(field, value)| field != "property_type" && !is_nothing(value));
        match known.get(&name) {
            Some(there) => {
                let said = (said, Map::new());
                say(transfer, Kind::PropertyDefinition, PROPERTIES, said, there).await?;
            }
            None if says_something => {
                let reason = "nothing in the target has this property, so it has no definition";
                transfer.report.note(Kind::PropertyDefinition, Outcome::Left, &name, reason);
            }
            None => {}
        }
    }
    Ok(())
}

/// The parameters by which the source lists what `owner` lists in the target.
fn of_source(transfer: &Transfer, owner: &str) -> Option<String> {
    let Some(target) = owner.strip_prefix("type=group&group_type_index=") else {
        return Some(owner.to_owned());
    };
    let index = transfer.state.ids.source_of(Kind::GroupType, target)?;
    Some(format!("type=group&group_type_index={index}"))
}

/// Says of a definition of the target what the source says and it does not; what it says itself stays.
async fn say(
    transfer: &mut Transfer,
    kind: Kind,
    path: &str,
    (said, times): (Map<String, Value>, Map<String, Value>),
    there: &Value,
) -> Result<(), Stop> {
    let name = name(there).unwrap_or_default();
    let mut news = times;
    let mut kept = Vec::new();
    for (field, value) in said {
        let own = there.get(&field).unwrap_or(&Value::Null);
        if is_nothing(&value) || is_like(&value, own) {
            continue;
        }
        match is_nothing(own) || transfer.options.is_update {
            true => _ = news.insert(field, value),
            false => kept.push(field),
        }
    }
    if !kept.is_empty() {
        let reason = format!("{}; --update changes it to what the source has", kept.join(", "));
        transfer.report.note(kind, Outcome::Kept, &name, reason);
    }
    if news.is_empty() {
        transfer.report.count(kind, Outcome::Same, u64::from(kept.is_empty()));
        return Ok(());
    }
    let id = there.get("id").and_then(id_of).unwrap_or_default();
    let path = transfer.target.path(&format!("{path}{id}/"));
    match send(transfer, "PATCH", &path, &news).await {
        Ok(_) => transfer.report.count(kind, Outcome::Changed, 1),
        Err(fault) if fault.refusal().is_some() => {
            transfer.report.note(kind, Outcome::Left, &name, fault.what.to_string());
        }
        Err(fault) => return Err(fault.into()),
    }
    Ok(())
}
