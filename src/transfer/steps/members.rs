//! Members of static cohorts, by one of their distinct ids: the persons of the target have other uuids.

use std::collections::HashSet;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::pages::Pages;
use crate::report::Outcome;
use crate::server::Repeat;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer, escaped};

/// Members of one page, and of one request.
const PAGE: usize = 500;

/// Adds the members of a cohort of the source to one of the target, those that it does not have.
pub(crate) async fn copy(
    transfer: &mut Transfer,
    source: &str,
    target: &str,
    name: &str,
) -> Result<(), Stop> {
    let known = known(transfer, target).await?;
    let server = transfer.source.server.clone();
    let list = format!("cohorts/{}/persons/?limit={PAGE}", escaped(source));
    let path = transfer.source.path(&list);
    let add = transfer.target.path(&format!("cohorts/{target}/add_persons_to_static_cohort/"));
    let mut pages = Pages::new(&server, &path);
    let mut unnamed = 0_usize;
    loop {
        let rows = match pages.next().await {
            Ok(Some(rows)) => rows,
            Ok(None) => break,
            Err(fault) if fault.refusal().is_some() => {
                let reason = format!("its members cannot be read: {}", fault.what);
                transfer.report.note(Kind::Cohort, Outcome::Left, name, reason);
                return Ok(());
            }
            Err(fault) => return Err(fault.into()),
        };
        let rows = persons(rows);
        let ids: Vec<&str> = rows.iter().filter_map(distinct_id).collect();
        unnamed += rows.len() - ids.len();
        let ids: Vec<&str> = ids.into_iter().filter(|id| !known.contains(&digest(id))).collect();
        for ids in ids.chunks(PAGE) {
            let body = json!({"distinct_ids": ids});
            transfer.target.server.put("PATCH", &add, &body, Repeat::Always).await?;
        }
    }
    if unnamed > 0 {
        let reason = format!("{unnamed} of its members have no distinct id");
        transfer.report.note(Kind::Cohort, Outcome::Left, name, reason);
    }
    Ok(())
}

/// Digests of the distinct ids of the members that a cohort of the target has. Each takes eight bytes, of which the set
/// needs two to four times as many.
async fn known(transfer: &Transfer, target: &str) -> Result<HashSet<u64>, Stop> {
    let server = &transfer.target.server;
    let path = transfer.target.path(&format!("cohorts/{target}/persons/?limit={PAGE}"));
    let mut pages = Pages::new(server, &path);
    let mut known = HashSet::new();
    while let Some(rows) = pages.next().await? {
        let ids = rows.iter().filter_map(|row| row.get("distinct_ids")?.as_array());
        known.extend(ids.flatten().filter_map(Value::as_str).map(digest));
    }
    Ok(known)
}

/// A digest that two of some million ids share by accident once in a million copies.
fn digest(id: &str) -> u64 {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes()).as_u64_pair().0
}

/// The persons of a page, which PostHog puts into lists `people`.
fn persons(rows: Vec<Value>) -> Vec<Value> {
    let flat = rows.into_iter().flat_map(|mut row| match row.get_mut("people").map(Value::take) {
        Some(Value::Array(people)) => people,
        _ => vec![row],
    });
    flat.collect()
}

fn distinct_id(person: &Value) -> Option<&str> {
    person.get("distinct_ids")?.as_array()?.iter().find_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{distinct_id, persons};

    #[test]
    fn persons_are_found_in_both_forms_of_a_page() {
        let people = persons(vec![
            json!({"people": [{"distinct_ids": ["a", "b"]}, {"distinct_ids": []}], "count": 2}),
            json!({"distinct_ids": ["c"]}),
        ]);
        let ids: Vec<Option<&str>> = people.iter().map(distinct_id).collect();
        assert_eq!(ids, [Some("a"), None, Some("c")]);
    }
}
