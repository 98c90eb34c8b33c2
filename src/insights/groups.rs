//! Lists of groups, such as the companies of a project. They are read from one snapshot of the identity store, one
//! group type at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use weir_event::id::ProjectId;
use weir_identity::person::Group;
use weir_identity::view::Flow;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::persons::people::Part;

/// Most groups that are kept in memory while a list is made.
const REMEMBERED_MAX: usize = 300_000;

/// Most groups that are sampled for properties, and for the values of one.
const SAMPLE: usize = 100_000;

/// Most distinct names or values that are counted; further ones are ignored.
const COUNTED_MAX: usize = 50_000;

/// A group and its key.
pub type Named = (String, Group);

/// The number of occurrences of each text.
pub type Counts = HashMap<String, usize>;

/// Searches the groups of a type for those whose key or property `name` contains `search`, case-insensitive. Returns
/// how many match, and those of `part`, newest first.
pub async fn find_groups(
    engine: &Engine,
    project: ProjectId,
    type_index: u8,
    search: Option<String>,
    part: Part,
) -> Result<(usize, Vec<Named>), QueryError> {
    let wanted = part.offset.saturating_add(part.limit);
    let remembered = wanted.min(REMEMBERED_MAX);
    let search = search.map(|search| search.to_lowercase());
    let read = engine.read(move |view, stop| {
        let mut first = BTreeSet::new();
        let mut count = 0;
        view.scan_groups_of(project, type_index, |key, group| {
            if search.as_deref().is_none_or(|search| contains(&key, &group, search)) {
                count += 1;
                first.insert((Reverse(group.created_at), key));
                if first.len() > remembered {
                    first.pop_last();
                }
            }
            flow(stop)
        })?;
        // A page after the last group is empty, whatever its offset.
        if wanted.min(count) > remembered {
            return Ok(None);
        }
        let mut groups = Vec::new();
        for (_, key) in first.into_iter().skip(part.offset) {
            if let Some(group) = view.group(project, type_index, &key)? {
                groups.push((key, group));
            }
        }
        Ok(Some((count, groups)))
    });
    read.await?.ok_or(QueryError::TooManyRows(REMEMBERED_MAX))
}

/// The number of groups in a sample that have each property, by group type index.
pub async fn group_properties(
    engine: &Engine,
    project: ProjectId,
    types: u8,
) -> Result<BTreeMap<u8, Counts>, QueryError> {
    engine
        .read(move |view, stop| {
            let mut properties = BTreeMap::new();
            for type_index in 0..types {
                let (mut counts, mut seen) = (Counts::new(), 0);
                view.scan_groups_of(project, type_index, |_, group| {
                    group.properties.into_iter().for_each(|(name, _)| note(&mut counts, name));
                    seen += 1;
                    if seen < SAMPLE { flow(stop) } else { ControlFlow::Break(()) }
                })?;
                properties.insert(type_index, counts);
            }
            Ok(properties)
        })
        .await
}

/// The values of a property in a sample of the groups of a type, with their counts.
pub async fn group_values(
    engine: &Engine,
    project: ProjectId,
    type_index: u8,
    key: String,
) -> Result<Counts, QueryError> {
    engine
        .read(move |view, stop| {
            let (mut counts, mut seen) = (Counts::new(), 0);
            view.scan_groups_of(project, type_index, |_, mut group| {
                match group.properties.remove(&key) {
                    None | Some(Value::Null) => {}
                    Some(Value::String(text)) if text.is_empty() => {}
                    Some(Value::String(text)) => note(&mut counts, text),
                    Some(other) => note(&mut counts, other.to_string()),
                }
                seen += 1;
                if seen < SAMPLE { flow(stop) } else { ControlFlow::Break(()) }
            })?;
            Ok(counts)
        })
        .await
}

fn contains(key: &str, group: &Group, search: &str) -> bool {
    let name = group.properties.get("name").and_then(Value::as_str);
    key.to_lowercase().contains(search)
        || name.is_some_and(|name| name.to_lowercase().contains(search))
}

fn note(counts: &mut Counts, text: String) {
    if counts.len() < COUNTED_MAX || counts.contains_key(&text) {
        *counts.entry(text).or_insert(0) += 1;
    }
}

fn flow(stop: &AtomicBool) -> Flow {
    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
