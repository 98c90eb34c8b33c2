//! Saved insights of all kinds, with queries or with the filters of older clients.

use serde_json::Value;

use crate::likeness::is_nothing;
use crate::objects::{TargetList, Wanted, fields, lacks, name_of};
use crate::references::{id_of, rewrite};
use crate::report::Outcome;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer};

const PATH: &str = "insights/";
const PARAMETERS: &str = "?limit=200&basic=true";

/// Fields that are copied.
const FIELDS: [&str; 9] = [
    "name",
    "derived_name",
    "description",
    "query",
    "filters",
    "order",
    "favorited",
    "saved",
    "tags",
];

/// Copies the insights.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let mut insights = transfer.listed(Kind::Insight, &format!("{PATH}{PARAMETERS}")).await?;
    insights.retain(|insight| insight.get("deleted") != Some(&Value::Bool(true)));
    insights.sort_by_key(|insight| insight.get("id").and_then(Value::as_i64));
    let key = &["name", "derived_name"];
    let mut place = TargetList::open(transfer, Kind::Insight, PATH, PARAMETERS, key).await?;
    for insight in &insights {
        place.announce(&fields(insight, key));
    }
    for insight in &insights {
        let Some(id) = insight.get("id").and_then(id_of) else { continue };
        let name = name_of(insight);
        let mut body = fields(insight, &FIELDS);
        // The older form stands beside the newer one in some versions, and is not read there.
        if body.get("query").is_some_and(|query| !is_nothing(query)) {
            body.remove("filters");
        }
        let mut body = Value::Object(body);
        let missing = rewrite(&mut body, &transfer.state.ids);
        if !missing.is_empty() {
            transfer.report.note(Kind::Insight, Outcome::Left, &name, lacks(&missing));
            continue;
        }
        let Value::Object(body) = body else { continue };
        let made = place.put(transfer, Wanted { id, name, body, optional: &[] }).await?;
        let short = |of: &Value| of.get("short_id").and_then(id_of);
        if let (Some(short), Some(target)) = (short(insight), made.as_ref().and_then(short)) {
            transfer.state.ids.insert(Kind::ShortInsight, short, target);
        }
    }
    transfer.keep()
}
