//! Cohorts and actions, which may refer to each other: a cohort to other cohorts and to actions, a step of an action to
//! cohorts. What refers to itself in a circle through an action is made in two steps: the action first without its steps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::likeness::is_nothing;
use crate::objects::{TargetList, Wanted, fields, lacks, name_of, send};
use crate::order::order;
use crate::references::{found, id_of, rewrite};
use crate::report::Outcome;
use crate::state::Kind;
use crate::steps::members;
use crate::transfer::{Stop, Transfer};

const COHORTS: &str = "cohorts/";
const ACTIONS: &str = "actions/";
const PARAMETERS: &str = "?limit=500";

/// Fields of an action that are copied.
const ACTION: [&str; 7] =
    ["name", "description", "tags", "post_to_slack", "slack_message_format", "steps", "pinned_at"];

/// A cohort or an action of the source.
struct Node {
    kind: Kind,
    id: String,
    object: Value,
}

/// Copies cohorts, with the members of static ones, and actions.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let mut nodes = Vec::new();
    for (kind, path) in [(Kind::Cohort, COHORTS), (Kind::Action, ACTIONS)] {
        let listed = transfer.listed(kind, &format!("{path}{PARAMETERS}")).await?;
        let listed = listed.into_iter().filter(|own| own.get("deleted") != Some(&json!(true)));
        nodes.extend(listed.filter_map(|object| {
            Some(Node { kind, id: object.get("id").and_then(id_of)?, object })
        }));
    }
    // The oldest first, as in lists of ids.
    nodes.sort_by_key(|node| (node.kind, node.id.parse::<i64>().unwrap_or(i64::MAX)));
    let (sorted, unfinished) = sorted(&nodes);
    let mut places = Places::open(transfer, &nodes).await?;
    for (at, node) in nodes.iter().enumerate() {
        if !sorted.contains(&at) {
            let reason = "it refers to itself, or to a cohort that does";
            transfer.report.note(node.kind, Outcome::Left, &name_of(&node.object), reason);
        }
    }
    for at in &sorted {
        let Some(node) = nodes.get(*at) else { continue };
        let is_whole = !unfinished.contains(at);
        places.put(transfer, node, is_whole).await?;
    }
    for at in &unfinished {
        if let Some(node) = nodes.get(*at) {
            finish(transfer, node).await?;
        }
    }
    Ok(())
}

/// Positions of the nodes in an order in which they can be made; and of the actions that are made without their steps.
fn sorted(nodes: &[Node]) -> (Vec<usize>, BTreeSet<usize>) {
    let places: BTreeMap<(Kind, &str), usize> =
        nodes.iter().enumerate().map(|(at, node)| ((node.kind, node.id.as_str()), at)).collect();
    let needs = |node: &Node| -> Vec<usize> {
        let references = found(&rules(node));
        let at = |reference: &crate::references::Reference| {
            places.get(&(reference.kind, reference.id.as_str())).copied()
        };
        references.iter().filter_map(at).collect()
    };
    let mut all: Vec<Vec<usize>> = nodes.iter().map(needs).collect();
    let first = order(&all);
    let is_action = |at: &usize| nodes.get(*at).is_some_and(|node| node.kind == Kind::Action);
    let unfinished: BTreeSet<usize> = first.circular.iter().copied().filter(is_action).collect();
    for at in &unfinished {
        if let Some(needs) = all.get_mut(*at) {
            needs.clear();
        }
    }
    (order(&all).sorted, unfinished)
}

/// What of an object refers to others.
fn rules(node: &Node) -> Value {
    let names: &[&str] = match node.kind {
        Kind::Cohort => &["filters", "groups", "query"],
        _ => &["steps"],
    };
    Value::Object(fields(&node.object, names))
}

/// The cohorts and actions of the target.
struct Places {
    cohorts: TargetList,
    actions: TargetList,
}

impl Places {
    async fn open(transfer: &Transfer, nodes: &[Node]) -> Result<Self, Stop> {
        let cohorts: &[&str] = &["name", "is_static"];
        let mut places = Self {
            cohorts: TargetList::open(
                transfer,
                Kind::Cohort,
                COHORTS,
                PARAMETERS,
                &["name", "is_static"],
            )
            .await?,
            actions: TargetList::open(transfer, Kind::Action, ACTIONS, PARAMETERS, &["name"])
                .await?,
        };
        for node in nodes {
            match node.kind {
                Kind::Cohort => places.cohorts.announce(&fields(&node.object, cohorts)),
                _ => places.actions.announce(&fields(&node.object, &["name"])),
            }
        }
        Ok(places)
    }

    async fn put(
        &mut self,
        transfer: &mut Transfer,
        node: &Node,
        is_whole: bool,
    ) -> Result<(), Stop> {
        let name = name_of(&node.object);
        let body = match body(node, is_whole) {
            Ok(body) => body,
            Err(reason) => {
                transfer.report.note(node.kind, Outcome::Left, &name, reason);
                return Ok(());
            }
        };
        let mut body = Value::Object(body);
        let missing = rewrite(&mut body, &transfer.state.ids);
        if !missing.is_empty() {
            transfer.report.note(node.kind, Outcome::Left, &name, lacks(&missing));
            return Ok(());
        }
        let Value::Object(body) = body else { return Ok(()) };
        let wanted = Wanted { id: node.id.clone(), name: name.clone(), body, optional: &[] };
        if node.kind == Kind::Action {
            self.actions.put(transfer, wanted).await?;
            return Ok(());
        }
        let is_static = node.object.get("is_static") == Some(&Value::Bool(true));
        let made = self.cohorts.put(transfer, wanted).await?;
        match made.and_then(|made| made.get("id").and_then(id_of)) {
            Some(target) if is_static => members::copy(transfer, &node.id, &target, &name).await,
            _ => Ok(()),
        }
    }
}

/// The fields that are sent, or why there are none.
fn body(node: &Node, is_whole: bool) -> Result<Map<String, Value>, &'static str> {
    let object = &node.object;
    if node.kind == Kind::Action {
        let mut body = fields(object, &ACTION);
        if !is_whole {
            body.remove("steps");
        }
        return Ok(body);
    }
    let mut body = fields(object, &["name", "description", "is_static"]);
    if object.get("is_static") == Some(&Value::Bool(true)) {
        return Ok(body);
    }
    let has = |name: &str| object.get(name).is_some_and(|value| !is_nothing(value));
    match (has("filters"), has("groups"), has("query")) {
        (true, ..) => body.extend(fields(object, &["filters"])),
        (_, true, _) => body.extend(fields(object, &["groups"])),
        (_, _, true) => return Err("its members are those of a query, which a cohort cannot have"),
        _ => return Err("it has no rule"),
    }
    Ok(body)
}

/// Gives an action its steps, which refer to cohorts that were made after it.
async fn finish(transfer: &mut Transfer, node: &Node) -> Result<(), Stop> {
    let Some(target) = transfer.state.ids.get(node.kind, &node.id).map(str::to_owned) else {
        return Ok(());
    };
    let mut body = Value::Object(fields(&node.object, &["steps"]));
    let missing = rewrite(&mut body, &transfer.state.ids);
    let name = name_of(&node.object);
    if !missing.is_empty() {
        transfer.report.note(node.kind, Outcome::Left, &name, lacks(&missing));
        return Ok(());
    }
    let path = transfer.target.path(&format!("{ACTIONS}{target}/"));
    let now = transfer.target.server.get(&path).await?;
    let is_empty = now.get("steps").is_none_or(is_nothing);
    let Value::Object(body) = body else { return Ok(()) };
    let is_same = now.as_object().is_some_and(|now| crate::likeness::has_all(&body, now));
    if is_same || !(is_empty || transfer.options.is_update) {
        return Ok(());
    }
    match send(transfer, "PATCH", &path, &body).await {
        Err(fault) if fault.refusal().is_some() => {
            transfer.report.note(node.kind, Outcome::Left, &name, fault.what.to_string());
            Ok(())
        }
        sent => sent.map(drop).map_err(Stop::from),
    }
}
