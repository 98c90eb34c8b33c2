//! Scheduled changes of flags that are still to be made.

use serde_json::{Value, json};

use crate::likeness::is_nothing;
use crate::objects::{TargetList, Wanted, fields, lacks};
use crate::references::{id_of, rewrite};
use crate::report::Outcome;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer};

const PATH: &str = "scheduled_changes/";

/// Fields that are copied.
const FIELDS: [&str; 8] = [
    "record_id",
    "model_name",
    "payload",
    "scheduled_at",
    "is_recurring",
    "recurrence_interval",
    "cron_expression",
    "end_date",
];

/// Copies the scheduled changes.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let mut changes = transfer.listed(Kind::Schedule, "scheduled_changes/?limit=500").await?;
    changes.sort_by_key(|change| change.get("id").and_then(Value::as_i64));
    let key = &["record_id", "payload", "scheduled_at"];
    let mut place = TargetList::open(transfer, Kind::Schedule, PATH, "?limit=500", key).await?;
    for change in &changes {
        let Some(id) = change.get("id").and_then(id_of) else { continue };
        let flag = change.get("record_id").and_then(id_of).unwrap_or_default();
        let name = format!("of flag {flag}");
        let mut left = |reason: String| {
            transfer.report.note(Kind::Schedule, Outcome::Left, &name, reason);
        };
        let is_done = ["executed_at", "failure_reason"]
            .iter()
            .any(|name| change.get(*name).is_some_and(|value| !is_nothing(value)));
        if is_done {
            left("it was made already".to_owned());
            continue;
        }
        if change.get("model_name") != Some(&json!("FeatureFlag")) {
            left("it is no change of a feature flag".to_owned());
            continue;
        }
        let mut body = Value::Object(fields(change, &FIELDS));
        let missing = rewrite(&mut body, &transfer.state.ids);
        let target = transfer.state.ids.get(Kind::Flag, &flag).map(str::to_owned);
        let (Some(target), Value::Object(mut body), true) = (target, body, missing.is_empty())
        else {
            let reason = match missing.is_empty() {
                true => "its feature flag did not come".to_owned(),
                false => lacks(&missing),
            };
            transfer.report.note(Kind::Schedule, Outcome::Left, &name, reason);
            continue;
        };
        body.insert("record_id".to_owned(), Value::from(target));
        place.put(transfer, Wanted { id, name, body, optional: &[] }).await?;
    }
    Ok(())
}
