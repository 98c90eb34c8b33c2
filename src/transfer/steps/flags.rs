//! Feature flags, those first that others depend on. A flag may only be made to depend on one that is on; so a flag that
//! is off and that others depend on is made on, for nobody, and gets its conditions and its state at the end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::fault::shown;
use crate::likeness::{has_all, is_nothing};
use crate::objects::{TargetList, Wanted, fields, lacks, send};
use crate::order::order;
use crate::references::{found, id_of, rewrite};
use crate::report::Outcome;
use crate::server::Repeat;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer, escaped};

const PATH: &str = "feature_flags/";

/// Fields that are copied.
const FIELDS: [&str; 16] = [
    "key",
    "name",
    "filters",
    "active",
    "created_at",
    "ensure_experience_continuity",
    "rollback_conditions",
    "performed_rollback",
    "tags",
    "has_enriched_analytics",
    "bucketing_identifier",
    "evaluation_runtime",
    "evaluation_contexts",
    "is_remote_configuration",
    "archived",
    "deleted",
];

/// Fields without which a flag is the same to its users.
const OPTIONAL: &[&str] = &["rollback_conditions", "performed_rollback", "has_enriched_analytics"];

/// A flag of the source.
struct Flag {
    id: String,
    object: Value,
    /// Positions of the flags that it depends on.
    needs: Vec<usize>,
}

/// Copies the flags.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let flags = listed(transfer).await?;
    let needs: Vec<Vec<usize>> = flags.iter().map(|flag| flag.needs.clone()).collect();
    let order = order(&needs);
    for flag in order.circular.iter().filter_map(|at| flags.get(*at)) {
        let reason = "it depends on itself, or on a flag that does";
        transfer.report.note(Kind::Flag, Outcome::Left, &key_of(&flag.object), reason);
    }
    let needed: BTreeSet<usize> = needs.into_iter().flatten().collect();
    let mut place = TargetList::open(transfer, Kind::Flag, PATH, "?limit=500", &["key"]).await?;
    let archived =
        TargetList::open(transfer, Kind::Flag, PATH, "?limit=500&archived=true", &["key"]);
    place.join(archived.await?);
    let mut later = Vec::new();
    for at in &order.sorted {
        let Some(flag) = flags.get(*at) else { continue };
        let is_off = flag.object.get("active") != Some(&Value::Bool(true));
        let is_later = is_off && needed.contains(at);
        let Some(body) = body(transfer, flag) else { continue };
        let name = key_of(&flag.object);
        let wanted = Wanted {
            id: flag.id.clone(),
            name: name.clone(),
            body: body.clone(),
            optional: OPTIONAL,
        };
        let open = open_for_nobody(&body);
        // An earlier run may have ended before it was given its state.
        let found = place.peek(transfer, &wanted).and_then(Value::as_object);
        if is_later && found.is_none_or(|found| has_all(&open, found)) {
            let wanted = Wanted { body: open, ..wanted };
            place.put(transfer, wanted).await?;
            later.push((flag, body));
        } else {
            place.put(transfer, wanted).await?;
        }
        if is_encrypted(&flag.object) {
            let reason = "its payloads are encrypted, and so are not told";
            transfer.report.note(Kind::Flag, Outcome::Left, &name, reason);
        }
    }
    // Those that depend on others first: a flag may only be switched off if none that is on depends on it.
    for (flag, body) in later.into_iter().rev() {
        finish(transfer, flag, &body).await?;
    }
    Ok(())
}

/// The key, which is what a flag is called.
fn key_of(flag: &Value) -> String {
    flag.get("key").and_then(Value::as_str).map(shown).unwrap_or_default()
}

/// Whether the source tells something else instead of its payloads.
fn is_encrypted(flag: &Value) -> bool {
    flag.get("has_encrypted_payloads") == Some(&Value::Bool(true))
}

/// The flags of the source, archived ones, too.
async fn listed(transfer: &mut Transfer) -> Result<Vec<Flag>, Stop> {
    let mut objects = transfer.listed(Kind::Flag, "feature_flags/?limit=500").await?;
    let archived = transfer.source.path("feature_flags/?limit=500&archived=true");
    match crate::pages::Pages::new(&transfer.source.server, &archived).all().await {
        // Older servers do not know the parameter, and list the same.
        Ok(archived) => objects.extend(archived),
        Err(fault) if fault.refusal().is_some() => {}
        Err(fault) => return Err(fault.into()),
    }
    let mut seen = BTreeSet::new();
    let mut flags: Vec<(String, Value)> = Vec::new();
    for object in objects {
        let Some(id) = object.get("id").and_then(id_of) else { continue };
        if object.get("deleted") != Some(&Value::Bool(true)) && seen.insert(id.clone()) {
            flags.push((id, object));
        }
    }
    flags.sort_by_key(|(id, _)| id.parse::<i64>().unwrap_or(i64::MAX));
    let places: BTreeMap<String, usize> =
        flags.iter().enumerate().map(|(at, (id, _))| (id.clone(), at)).collect();
    let flags = flags.into_iter().map(|(id, object)| {
        let references = object.get("filters").map(found).unwrap_or_default();
        let flags = references.iter().filter(|reference| reference.kind == Kind::Flag);
        let needs = flags.filter_map(|flag| places.get(&flag.id).copied()).collect();
        Flag { id, object, needs }
    });
    Ok(flags.collect())
}

/// The fields that are sent, with the ids of the target; none if it refers to something that did not come.
fn body(transfer: &mut Transfer, flag: &Flag) -> Option<Map<String, Value>> {
    let mut body = fields(&flag.object, &FIELDS);
    if let Some(tags) = flag.object.get("evaluation_tags").filter(|tags| !is_nothing(tags)) {
        body.entry("evaluation_contexts").or_insert_with(|| tags.clone());
    }
    if let Some(Value::Object(filters)) = body.get_mut("filters")
        && is_encrypted(&flag.object)
    {
        filters.remove("payloads");
    }
    let mut body = Value::Object(body);
    let missing = rewrite(&mut body, &transfer.state.ids);
    if !missing.is_empty() {
        let name = key_of(&flag.object);
        transfer.report.note(Kind::Flag, Outcome::Left, &name, lacks(&missing));
        return None;
    }
    match body {
        Value::Object(body) => Some(body),
        _ => None,
    }
}

/// The flag switched on, with the variants and payloads that it has, for nobody.
fn open_for_nobody(body: &Map<String, Value>) -> Map<String, Value> {
    let mut open = body.clone();
    open.insert("active".to_owned(), json!(true));
    open.remove("archived");
    if let Some(Value::Object(filters)) = open.get_mut("filters") {
        let nobody = json!([{"properties": [], "rollout_percentage": 0}]);
        filters.insert("groups".to_owned(), nobody);
        for name in ["super_groups", "holdout", "holdout_groups", "feature_enrollment"] {
            filters.remove(name);
        }
    }
    open
}

/// Gives a flag the state and the conditions that it has in the source.
async fn finish(
    transfer: &mut Transfer,
    flag: &Flag,
    body: &Map<String, Value>,
) -> Result<(), Stop> {
    let Some(target) = transfer.state.ids.get(Kind::Flag, &flag.id).map(str::to_owned) else {
        return Ok(());
    };
    let path = transfer.target.path(&format!("{PATH}{target}/"));
    // The state first: archived flags are off.
    let off = Map::from_iter([("active".to_owned(), json!(false))]);
    for body in [&off, body] {
        match send(transfer, "PATCH", &path, body).await {
            Err(fault) if fault.refusal().is_some() => {
                let reason = format!("it stays on for nobody: {}", fault.what);
                let name = key_of(&flag.object);
                transfer.report.note(Kind::Flag, Outcome::Left, &name, reason);
                return Ok(());
            }
            sent => sent.map(drop)?,
        }
    }
    Ok(())
}

/// Tells flags which dashboards are about them, once these are there.
pub(crate) async fn link_boards(transfer: &mut Transfer) -> Result<(), Stop> {
    if !transfer.state.ids.has_any(Kind::Flag) {
        return Ok(());
    }
    for flag in listed(transfer).await? {
        let boards = flag.object.get("analytics_dashboards").and_then(Value::as_array);
        let boards: Vec<i64> = boards
            .into_iter()
            .flatten()
            .filter_map(id_of)
            .filter_map(|id| transfer.state.ids.get(Kind::Dashboard, &id)?.parse().ok())
            .collect();
        let target = transfer.state.ids.get(Kind::Flag, &flag.id).map(str::to_owned);
        let Some(target) = target.filter(|_| !boards.is_empty()) else { continue };
        let path = transfer.target.path(&format!("{PATH}{target}/"));
        let now = transfer.target.server.get(&path).await?;
        let there = now.get("analytics_dashboards").and_then(Value::as_array);
        let there: BTreeSet<i64> = there.into_iter().flatten().filter_map(Value::as_i64).collect();
        if boards.iter().all(|board| there.contains(board)) {
            continue;
        }
        let body = json!({"analytics_dashboards": boards});
        transfer.target.server.put("PATCH", &path, &body, Repeat::Always).await?;
    }
    Ok(())
}

/// Gives flags of early access features the conditions that they have in the source: a feature changes its flag.
pub(crate) async fn restore(
    transfer: &mut Transfer,
    source: &str,
    target: &str,
) -> Result<(), Stop> {
    let path = transfer.source.path(&format!("{PATH}{}/", escaped(source)));
    let object = transfer.source.server.get(&path).await?;
    let flag = Flag { id: source.to_owned(), object, needs: Vec::new() };
    let Some(body) = body(transfer, &flag) else { return Ok(()) };
    let wanted: Map<String, Value> =
        body.into_iter().filter(|(name, _)| name == "filters").collect();
    let path = transfer.target.path(&format!("{PATH}{target}/"));
    let now = transfer.target.server.get(&path).await?;
    if now.as_object().is_some_and(|now| has_all(&wanted, now)) {
        return Ok(());
    }
    match send(transfer, "PATCH", &path, &wanted).await {
        Err(fault) if fault.refusal().is_some() => {
            let reason = format!("its conditions differ: {}", fault.what);
            transfer.report.note(Kind::Flag, Outcome::Left, &key_of(&flag.object), reason);
            Ok(())
        }
        sent => sent.map(drop).map_err(Stop::from),
    }
}
