//! Groups and their types. A type has the same index in both projects if it can; references to it are rewritten where it
//! cannot. Groups are sent as `$groupidentify` events that are not stored.

use serde_json::{Map, Value, json};

use crate::batches::{Batch, Only};
use crate::fault::Fault;
use crate::objects::{fields, note_id};
use crate::pages::Pages;
use crate::references::id_of;
use crate::report::Outcome;
use crate::server::Repeat;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer, escaped};

/// Groups of one page.
const PAGE: usize = 500;

/// Who sends groups. Nothing is stored of it.
const SENDER: &str = "weir-transfer";

/// Registers the types of groups, in the order of their indexes.
pub(crate) async fn types(transfer: &mut Transfer) -> Result<(), Stop> {
    let mut types = transfer.listed(Kind::GroupType, "groups_types/").await?;
    types.sort_by_key(|own| own.get("group_type_index").and_then(Value::as_i64));
    for own in &types {
        let name = text(own, "group_type");
        if index_of(&targets(transfer).await?, name).is_none() {
            let mut batch = Batch::new(
                transfer.target.text("api_token"),
                Only::Persons { is_overwriting: false },
            );
            let groups = Map::from_iter([(name.to_owned(), Value::from(SENDER))]);
            let event = json!({
                "event": "$groupidentify", "distinct_id": SENDER, "properties": {"$groups": groups},
            });
            batch.add(&event.to_string());
            transfer.post(&mut batch, Kind::GroupType).await?;
        }
    }
    let known = targets(transfer).await?;
    for own in &types {
        let (name, index) = (text(own, "group_type"), own.get("group_type_index").and_then(id_of));
        match (index, index_of(&known, name)) {
            (Some(index), Some(target)) => {
                note_id(transfer, Kind::GroupType, &index, &target)?;
                call(transfer, own, &known, &target).await?;
            }
            _ => {
                let reason = "a project has at most five types of groups";
                transfer.report.note(Kind::GroupType, Outcome::Left, name, reason);
            }
        }
    }
    Ok(())
}

async fn targets(transfer: &Transfer) -> Result<Vec<Value>, Fault> {
    Pages::new(&transfer.target.server, &transfer.target.path("groups_types/")).all().await
}

fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn index_of(types: &[Value], name: &str) -> Option<String> {
    let own = types.iter().find(|own| text(own, "group_type") == name)?;
    own.get("group_type_index").and_then(id_of)
}

/// Gives a type the names that it has in the source, where it has none.
async fn call(
    transfer: &mut Transfer,
    own: &Value,
    known: &[Value],
    target: &str,
) -> Result<(), Stop> {
    let named = known
        .iter()
        .find(|known| known.get("group_type_index").and_then(id_of).as_deref() == Some(target));
    let mut names = fields(own, &["name_singular", "name_plural"]);
    names.retain(|name, value| {
        let there = named.and_then(|named| named.get(name)).filter(|value| !value.is_null());
        there.is_none_or(|there| transfer.options.is_update && there != value)
    });
    if names.is_empty() {
        transfer.report.count(Kind::GroupType, Outcome::Same, 1);
        return Ok(());
    }
    names.insert("group_type_index".to_owned(), json!(target.parse::<i64>().unwrap_or_default()));
    let path = transfer.target.path("groups_types/update_metadata/");
    let body = json!([names]);
    transfer.target.server.put("PATCH", &path, &body, Repeat::Always).await?;
    transfer.report.count(Kind::GroupType, Outcome::Changed, 1);
    Ok(())
}

/// Copies the groups of all types.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let types = Pages::new(&transfer.source.server, &transfer.source.path("groups_types/")).all();
    let types = match types.await {
        Ok(types) => types,
        // Noted by the step before.
        Err(fault) if fault.refusal().is_some() => return Ok(()),
        Err(fault) => return Err(fault.into()),
    };
    let mut count = 0_u64;
    for own in &types {
        let Some(index) = own.get("group_type_index").and_then(id_of) else { continue };
        let Some(target) = transfer.state.ids.get(Kind::GroupType, &index) else { continue };
        let target = target.to_owned();
        let of_target = transfer.target.path(&format!("groups/?group_type_index={target}&limit=1"));
        let is_empty = Pages::new(&transfer.target.server, &of_target).next().await?;
        let is_empty = is_empty.is_none_or(|rows| rows.is_empty());
        let name = text(own, "group_type").to_owned();
        let source = transfer.source.server.clone();
        let path = format!("groups/?group_type_index={}&limit={PAGE}", escaped(&index));
        let mut pages = Pages::new(&source, &transfer.source.path(&path));
        loop {
            let rows = match pages.next().await {
                Ok(Some(rows)) => rows,
                Ok(None) => break,
                Err(fault) => {
                    transfer.all_left(Kind::Group, fault)?;
                    break;
                }
            };
            send_page(transfer, &rows, &name, (!is_empty).then_some(&target)).await?;
            count += u64::try_from(rows.len()).unwrap_or_default();
            transfer.reached(Kind::Group, count);
        }
    }
    Ok(())
}

/// Sends a page of groups. If `index` is there, the target has groups of the type already, which are looked up.
async fn send_page(
    transfer: &mut Transfer,
    rows: &[Value],
    group_type: &str,
    index: Option<&String>,
) -> Result<(), Stop> {
    let mut batch =
        Batch::new(transfer.target.text("api_token"), Only::Persons { is_overwriting: false });
    for row in rows {
        let key = text(row, "group_key");
        if key.is_empty() {
            transfer.report.note(Kind::Group, Outcome::Left, key, "it has no key");
            continue;
        }
        let none = Map::new();
        let set = row.get("group_properties").and_then(Value::as_object).unwrap_or(&none);
        let known = match index {
            Some(index) => known(transfer, index, key).await?,
            None => None,
        };
        let is_overwriting = transfer.options.is_overwriting;
        let is_new = known.is_none();
        let known = known.unwrap_or_default();
        let news = set.iter().filter(|(name, value)| match known.get(*name) {
            None => true,
            Some(there) => is_overwriting && there != *value,
        });
        let news: Map<String, Value> =
            news.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !is_new && news.is_empty() {
            transfer.report.count(Kind::Group, Outcome::Same, 1);
            continue;
        }
        let event = json!({
            "event": "$groupidentify", "distinct_id": SENDER, "timestamp": row.get("created_at"),
            "properties": {"$group_type": group_type, "$group_key": key, "$group_set": news},
        });
        let event = event.to_string();
        if batch.is_full(event.len()) {
            transfer.post(&mut batch, Kind::Group).await?;
        }
        batch.add(&event);
        batch.becomes(if is_new { Outcome::Made } else { Outcome::Changed });
    }
    transfer.post(&mut batch, Kind::Group).await
}

/// The properties of a group of the target; `None` if it does not exist.
async fn known(
    transfer: &Transfer,
    index: &str,
    key: &str,
) -> Result<Option<Map<String, Value>>, Fault> {
    let query = format!("groups/find/?group_type_index={index}&group_key={}", escaped(key));
    match transfer.target.server.get(&transfer.target.path(&query)).await {
        Ok(Value::Object(mut group)) => match group.remove("group_properties") {
            Some(Value::Object(properties)) => Ok(Some(properties)),
            _ => Ok(Some(Map::new())),
        },
        Ok(_) => Ok(None),
        Err(fault) if fault.refusal() == Some(404) => Ok(None),
        Err(fault) => Err(fault),
    }
}
