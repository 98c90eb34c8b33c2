//! Finds the objects of the source in the target, or makes them there: [`TargetList`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::fault::{Fault, shown};
use crate::likeness::{has_all, is_nothing};
use crate::pages::Pages;
use crate::references::{Reference, id_of};
use crate::report::Outcome;
use crate::server::Repeat;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer};

/// Most fields that are left out of an object because the target does not know them.
const UNKNOWN_MAX: usize = 40;

/// An object of the source, in the form in which it is sent to the target.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Its id in the source.
    pub(crate) id: String,
    /// What it is called in the report.
    pub(crate) name: String,
    /// The fields, with the ids of the target.
    pub(crate) body: Map<String, Value>,
    /// Fields without which it is still of use: it comes without one that the target refuses.
    pub(crate) optional: &'static [&'static str],
}

/// The objects of one kind in the target.
#[derive(Debug)]
pub(crate) struct TargetList {
    kind: Kind,
    /// The list, from the project on.
    path: &'static str,
    /// The fields by which an object is found that was made by an earlier run.
    key: &'static [&'static str],
    existing: Vec<Existing>,
    /// How many objects of the source have the same key.
    wanted: BTreeMap<String, usize>,
}

/// An object of the target.
#[derive(Debug)]
struct Existing {
    id: String,
    key: String,
    object: Value,
    /// Whether it is that of an object of the source.
    is_taken: bool,
}

impl TargetList {
    /// Lists the objects of the target.
    pub(crate) async fn open(
        transfer: &Transfer,
        kind: Kind,
        path: &'static str,
        parameters: &str,
        key: &'static [&'static str],
    ) -> Result<Self, Stop> {
        let address = transfer.target.path(&format!("{path}{parameters}"));
        let listed = Pages::new(&transfer.target.server, &address).all().await?;
        let existing = listed.into_iter().filter_map(|object| {
            let id = object.get("id").and_then(id_of)?;
            Some(Existing { id, key: key_of(key, object.as_object()?), object, is_taken: false })
        });
        let mut existing: Vec<Existing> = existing.collect();
        // The oldest first, as they are made: of objects that are the same, the first is that of the first.
        existing.sort_by_key(|own| own.id.parse::<i64>().unwrap_or(i64::MAX));
        Ok(Self { kind, path, key, existing, wanted: BTreeMap::new() })
    }

    /// Announces an object of the source, so that one with a key of its own is found although it differs.
    pub(crate) fn announce(&mut self, object: &Map<String, Value>) {
        *self.wanted.entry(key_of(self.key, object)).or_default() += 1;
    }

    /// Adds the objects of another list of the same kind.
    pub(crate) fn join(&mut self, other: Self) {
        let ids: BTreeSet<String> = self.existing.iter().map(|own| own.id.clone()).collect();
        self.existing.extend(other.existing.into_iter().filter(|own| !ids.contains(&own.id)));
    }

    /// Whether the target has the object already.
    pub(crate) fn has(&self, transfer: &Transfer, wanted: &Wanted) -> bool {
        self.position(transfer, wanted).is_some()
    }

    /// The object as the target has it, if it does.
    pub(crate) fn peek(&self, transfer: &Transfer, wanted: &Wanted) -> Option<&Value> {
        self.existing.get(self.position(transfer, wanted)?).map(|own| &own.object)
    }

    /// The place of an object in the target: by the stored map, by its content, or by a key that no other object has.
    fn position(&self, transfer: &Transfer, wanted: &Wanted) -> Option<usize> {
        if let Some(known) = transfer.state.ids.get(self.kind, &wanted.id)
            && let Some(at) = self.existing.iter().position(|own| own.id == known)
        {
            return Some(at);
        }
        let key = key_of(self.key, &wanted.body);
        let numbered = self.existing.iter().enumerate();
        let alike: Vec<(usize, &Existing)> =
            numbered.filter(|(_, own)| !own.is_taken && own.key == key).collect();
        let is_same = |own: &Value| own.as_object().is_some_and(|own| has_all(&wanted.body, own));
        let same = alike.iter().find(|(_, own)| is_same(&own.object));
        let is_only = alike.len() == 1
            && self.wanted.get(&key).is_none_or(|count| *count <= 1)
            && !key.trim().is_empty();
        let only = alike.first().filter(|_| is_only);
        same.or(only).map(|(at, _)| *at)
    }

    fn find(&mut self, transfer: &Transfer, wanted: &Wanted) -> Option<Value> {
        let at = self.position(transfer, wanted)?;
        let found = self.existing.get_mut(at)?;
        found.is_taken = true;
        Some(found.object.clone())
    }

    /// Finds or makes an object. Returns it as the target has it; `None` if it could not come.
    pub(crate) async fn put(
        &mut self,
        transfer: &mut Transfer,
        wanted: Wanted,
    ) -> Result<Option<Value>, Stop> {
        let Some(found) = self.find(transfer, &wanted) else {
            return self.make(transfer, wanted).await;
        };
        let id = found.get("id").and_then(id_of).unwrap_or_default();
        note_id(transfer, self.kind, &wanted.id, &id)?;
        let is_same = found.as_object().is_some_and(|own| has_all(&wanted.body, own));
        if is_same {
            transfer.report.count(self.kind, Outcome::Same, 1);
            return Ok(Some(found));
        }
        if !transfer.options.is_update {
            let differing = differing(&wanted.body, &found);
            let reason = format!("{differing}; --update changes it to what the source has");
            transfer.report.note(self.kind, Outcome::Kept, &wanted.name, reason);
            return Ok(Some(found));
        }
        let path = transfer.target.path(&format!("{}{id}/", self.path));
        let sent = send(transfer, "PATCH", &path, &wanted.body).await;
        self.finish(transfer, &wanted, sent, Outcome::Changed)
    }

    async fn make(
        &mut self,
        transfer: &mut Transfer,
        wanted: Wanted,
    ) -> Result<Option<Value>, Stop> {
        transfer.state.ids.remove(self.kind, &wanted.id);
        let path = transfer.target.path(self.path);
        let mut body = wanted.body.clone();
        let sent = loop {
            let fault = match send(transfer, "POST", &path, &body).await {
                Err(fault) => fault,
                sent => break sent,
            };
            let field = fault.field().and_then(|field| field.split("__").next());
            let field = field.filter(|field| wanted.optional.contains(field));
            let Some(field) = field.filter(|field| body.remove(*field).is_some()) else {
                break Err(fault);
            };
            let reason = format!("without its {field}: {}", fault.what);
            transfer.report.note(self.kind, Outcome::Left, &wanted.name, reason);
        };
        self.finish(transfer, &wanted, sent, Outcome::Made)
    }

    fn finish(
        &self,
        transfer: &mut Transfer,
        wanted: &Wanted,
        sent: Result<Value, Fault>,
        outcome: Outcome,
    ) -> Result<Option<Value>, Stop> {
        match sent {
            Ok(made) => {
                let id = made.get("id").and_then(id_of).unwrap_or_default();
                note_id(transfer, self.kind, &wanted.id, &id)?;
                transfer.report.count(self.kind, outcome, 1);
                Ok(Some(made))
            }
            Err(fault) if fault.refusal().is_some() => {
                let reason = fault.what.to_string();
                transfer.report.note(self.kind, Outcome::Left, &wanted.name, reason);
                Ok(None)
            }
            Err(fault) => Err(fault.into()),
        }
    }
}

/// The values of these fields, as one text.
fn key_of(names: &[&str], object: &Map<String, Value>) -> String {
    let part = |name: &&str| {
        let value = object.get(*name).filter(|value| !is_nothing(value));
        value.map(Value::to_string).unwrap_or_default()
    };
    names.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// Notes the id of an object in the target, and stores the state if that is new.
pub(crate) fn note_id(
    transfer: &mut Transfer,
    kind: Kind,
    id: &str,
    target: &str,
) -> Result<(), Stop> {
    if transfer.state.ids.get(kind, id) == Some(target) {
        return Ok(());
    }
    transfer.state.ids.insert(kind, id, target);
    transfer.keep()
}

/// The names of fields that differ.
fn differing(wanted: &Map<String, Value>, found: &Value) -> String {
    let none = Map::new();
    let found = found.as_object().unwrap_or(&none);
    let names = wanted.iter().filter(|(name, value)| {
        let one = Map::from_iter([((*name).clone(), (*value).clone())]);
        !has_all(&one, found)
    });
    let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

/// Sends an object. A field that the target does not know, and that says nothing, is left out.
pub(crate) async fn send(
    transfer: &Transfer,
    method: &'static str,
    path: &str,
    body: &Map<String, Value>,
) -> Result<Value, Fault> {
    let mut body = Value::Object(body.clone());
    let repeat = if method == "POST" { Repeat::IfRefused } else { Repeat::Always };
    for _ in 0..UNKNOWN_MAX {
        match transfer.target.server.put(method, path, &body, repeat).await {
            Err(fault) => {
                let is_less = fault.field().is_some_and(|field| remove_nothing(&mut body, field));
                if !is_less {
                    return Err(fault);
                }
            }
            sent => return sent,
        }
    }
    transfer.target.server.put(method, path, &body, repeat).await
}

/// Removes the field at a path such as `query__source__version`, if it says nothing.
fn remove_nothing(body: &mut Value, path: &str) -> bool {
    let (parent, name) = match path.rsplit_once("__") {
        Some((parent, name)) => (Some(parent), name),
        None => (None, path),
    };
    let mut at = body;
    for step in parent.into_iter().flat_map(|parent| parent.split("__")) {
        let below = match at {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(items) => step.parse().ok().and_then(|at: usize| items.get_mut(at)),
            _ => None,
        };
        match below {
            Some(below) => at = below,
            None => return false,
        }
    }
    match at {
        Value::Object(fields) if fields.get(name).is_some_and(is_nothing) => {
            fields.remove(name);
            true
        }
        _ => false,
    }
}

/// The fields of an object with these names that are not null.
pub(crate) fn fields(object: &Value, names: &[&str]) -> Map<String, Value> {
    let field = |name: &&str| {
        let value = object.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    };
    names.iter().filter_map(field).collect()
}

/// The name of an object for the report.
pub(crate) fn name_of(object: &Value) -> String {
    let text =
        |name: &str| object.get(name).and_then(Value::as_str).filter(|name| !name.is_empty());
    let named = text("name").or_else(|| text("key")).or_else(|| text("derived_name"));
    let named = named.or_else(|| text("content")).or_else(|| text("short_id"));
    named.map_or_else(|| object.get("id").and_then(id_of).unwrap_or_default(), shown)
}

/// Why an object cannot come whose references are not in the target.
pub(crate) fn lacks(missing: &[Reference]) -> String {
    let named: Vec<String> = missing
        .iter()
        .take(5)
        .map(|reference| format!("the {} {}", reference.kind.name(), shown(&reference.id)))
        .collect();
    format!("it refers to {}, which did not come", named.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::remove_nothing;

    #[test]
    fn only_what_says_nothing_is_left_out() {
        for (path, is_removed) in [
            ("a", true),
            ("b", false),
            ("c__0__d", true),
            ("c__0__e", false),
            ("c__1__d", false),
            ("c__0__d__x", false),
            ("none", false),
            ("", false),
        ] {
            let mut body = json!({"a": null, "b": 1, "c": [{"d": [], "e": "x"}]});
            let before = body.clone();
            assert_eq!(remove_nothing(&mut body, path), is_removed, "{path}");
            assert_eq!(body != before, is_removed, "{path}");
        }
    }
}
