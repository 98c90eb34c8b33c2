//! Statistics of flag calls: the events that SDKs send when code evaluates a flag, as a chart of one flag and as counts
//! of several.

use std::collections::HashMap;

use crate::routes::pages::insights::boards::insight;
use crate::routes::pages::visit::Asking;
use maud::{Markup, html};
use weir_api::flags::Flag;
use weir_insights::flag_calls::calls;
use weir_web::insight::links;
use weir_web::pages::flags as shown;
use weir_web::parts::query;
use weir_web::state::insight::{Kind, Question};
use weir_web::state::node::node;

/// The event that SDKs send when code evaluates a flag.
const CALLED: &str = "$feature_flag_called";

/// The properties with the key of the flag, and with its value.
const FLAG: &str = "$feature_flag";
const RESPONSE: &str = "$feature_flag_response";

/// The time range of charts, in the format of the API.
const DAYS: &str = "-14d";

/// The number of calls of flags within a week, by their keys; `None` if the key may not query, or the query fails.
pub(super) async fn counts(asking: &Asking, flags: &[Flag]) -> Option<HashMap<String, i64>> {
    if !asking.may("query:read") || flags.is_empty() {
        return None;
    }
    let keys: Vec<&str> = flags.iter().map(|flag| flag.key.as_str()).collect();
    calls(&asking.app.engine, asking.asker.project.id, &keys).await.ok()
}

/// A chart of the calls of one flag by day and by value.
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
