//! What PostHog has and Weir has not: counted, so that nobody believes that it came.

use serde_json::Value;

use crate::report::Outcome;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer};

/// Lists of a project, and what is in them.
const LISTS: [(&str, &str); 8] = [
    ("experiments/", "experiments"),
    ("surveys/", "surveys"),
    ("notebooks/", "notebooks"),
    ("session_recording_playlists/", "collections of recordings"),
    ("hog_functions/", "destinations and transformations"),
    ("batch_exports/", "batch exports"),
    ("alerts/", "alerts"),
    ("subscriptions/", "subscriptions"),
];

/// Notes what is in these lists.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    for (path, name) in LISTS {
        let path = transfer.source.path(&format!("{path}?limit=1"));
        // A server without such a list, or a key that may not read it, says nothing of it.
        let Ok(page) = transfer.source.server.get(&path).await else { continue };
        let listed = page.get("results").and_then(Value::as_array).map_or(0, Vec::len);
        let count = page.get("count").and_then(Value::as_u64);
        let count = count.unwrap_or(u64::try_from(listed).unwrap_or_default());
        if count > 0 {
            let reason = format!("{count} in the source, of which Weir has none");
            transfer.report.note(Kind::Setting, Outcome::Left, name, reason);
        }
    }
    Ok(())
}
