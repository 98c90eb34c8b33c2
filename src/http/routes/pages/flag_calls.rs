//! How often flags were asked for: the events that SDKs send for it, as a chart of one flag and as numbers of several.

use std::collections::HashMap;

use maud::Markup;
use maud::html;
use serde_json::Value;
use serde_json::json;

use crate::http::response::Problem;
use crate::http::routes::pages::insights::boards::insight;
use crate::http::routes::pages::insights::computed;
use crate::http::routes::pages::visit::Asking;
use crate::web::insight::links;
use crate::web::pages::flags as shown;
use crate::web::parts::query;
use crate::web::parts::text;
use crate::web::state::insight::Kind;
use crate::web::state::insight::Question;
use crate::web::state::node::node;

/// What the SDKs send when code asks for a flag.
const CALLED: &str = "$feature_flag_called";

/// The properties with the key of the flag, and with what it was.
const FLAG: &str = "$feature_flag";
const RESPONSE: &str = "$feature_flag_response";

/// The time of numbers in lists, and of charts, as the API has it.
const WEEK: &str = "-7d";
const DAYS: &str = "-14d";

/// The calls of some flags within a week, by their keys; `None` for a key that may not ask.
pub(super) async fn counts(
    asking: &Asking,
    flags: &[Value],
) -> Result<Option<HashMap<String, f64>>, Problem> {
    if !asking.may("query:read") || flags.is_empty() {
        return Ok(None);
    }
    let keys: Vec<&str> = flags.iter().map(|flag| text(flag, "key")).collect();
    let asked = json!({
        "kind": "TrendsQuery",
        "series": [{"kind": "EventsNode", "event": CALLED}],
        "dateRange": {"date_from": WEEK},
        "properties": [{"type": "event", "key": FLAG, "operator": "exact", "value": keys}],
        "trendsFilter": {"display": "ActionsBarValue"},
        "breakdownFilter": {"breakdown": FLAG, "breakdown_type": "event", "breakdown_limit": keys.len()},
    });
    let project = &asking.asker.project;
    let (results, _) = computed(&asking.app, project, &asked, String::new()).await?;
    let mut counts = HashMap::new();
    for row in results.as_array().into_iter().flatten() {
        let count = row.get("aggregated_value").and_then(Value::as_f64).unwrap_or(0.0);
        counts.insert(text(row, "breakdown_value").to_owned(), count);
    }
    Ok(Some(counts))
}

/// The calls of one flag by day and by what it was.
pub(super) async fn chart(asking: &Asking, key: &str) -> Markup {
    let Some(question) = question(key) else { return html! {} };
    let address = links::question(asking.project(), &question);
    let chart = insight(asking, &asking.app, &node(&question)).await;
    shown::calls(&address, &chart)
}

fn question(key: &str) -> Option<Question> {
    let address = query(&[
        ("a", CALLED),
        ("a.f1.key", FLAG),
        ("a.f1.value", key),
        ("by1.key", RESPONSE),
        ("from", DAYS),
        ("show", "stacked"),
    ]);
    Question::parse(Kind::Trends, &address).ok()
}
